// The protocol over an engine whose model is a fake: what clients are told, and what is left behind.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <sstream>

#include "asynct/engine/beam_search.h"
#include "asynct/engine/engine_testing.h"
#include "asynct/serve/completions.h"
#include "asynct/serve/models.h"
#include "asynct/serve/publisher.h"
#include "asynct/serve/request_fields.h"
#include "asynct/serve/score.h"
#include "asynct/text/grammar/grammar.h"

namespace asynct::serve {
namespace {

class Recording : public http::Responder {
 public:
  bool send(int status, std::string_view /*type*/, std::string_view body,
            const http::Headers& /*headers*/) override {
    return finish([&] {
      this->status = status;
      this->body = body;
    });
  }
  bool begin_stream(int status, std::string_view /*type*/, const http::Headers& /*headers*/) override {
    const std::lock_guard lock(mutex_);
    this->status = status;
    return true;
  }
  std::size_t write(std::string_view chunk) override {
    const std::lock_guard lock(mutex_);
    body += chunk;
    return 0;
  }
  bool end() override {
    return finish([] {});
  }
  void on_disconnect(std::function<void()> callback) override { left_ = std::move(callback); }
  bool closed() const override { return closed_; }

  void wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(done_.wait_for(lock, std::chrono::seconds(60), [&] { return closed_; }));
  }
  void leave() { left_(); }

  int status = 0;
  std::string body;
  int place = 0;  // among all that were answered

 private:
  template <class Change>
  bool finish(Change change) {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(closed_) << "answered twice";
    change();
    static std::atomic<int> answered = 0;
    place = ++answered;
    closed_ = true;
    done_.notify_all();
    return true;
  }
  std::mutex mutex_;
  std::condition_variable done_;
  bool closed_ = false;
  std::function<void()> left_;
};

class HandlersTest : public testing::Test {
 protected:
  explicit HandlersTest(std::int32_t blocks = 200, std::int64_t max_queue = 100)
      : model(blocks),
        engine(model,
               {.engine = {.blocks = blocks,
                           .block_size = kBlock,
                           .batch_tokens = 32,
                           .max_sequences = 8,
                           .prefix_cache = true},
                .max_queue = max_queue},
               [this] { publisher.flush(); }),
        context{.tokenizer = tokenizer,
                .engine = engine,
                .publisher = publisher,
                .metrics = metrics,
                .model_names = {"fake", "alias"},
                .end_tokens = {49},
                .vocabulary = model.vocabulary(),
                .max_length = model.max_length(),
                .created = 1} {}

  std::shared_ptr<Recording> post(const std::string& body,
                                  void (*handle)(const Context&, const http::HttpRequest&,
                                                 std::shared_ptr<http::Responder>) = handle_completions) {
    const auto responder = std::make_shared<Recording>();
    handle(context, {.method = "POST", .path = "/", .body = body, .id = "id"}, responder);
    return responder;
  }
  Json ask(const std::string& body) {
    const auto responder = post(body);
    responder->wait();
    EXPECT_EQ(responder->status, 200) << responder->body;
    return parse_json(responder->body, "answer");
  }
  std::string refusal(const std::string& body) {
    try {
      post(body)->wait();
    } catch (const RequestError& error) {
      return cat(error.status, " ", error.param, ": ", error.what());
    }
    return "accepted";
  }

  const Tokenizer tokenizer = Tokenizer::load("models/asynct-tiny");
  FakeRunner model;
  Metrics metrics;
  Publisher publisher;
  EngineThread engine;
  Context context;
};

TEST_F(HandlersTest, AnswersEveryPromptAndChoiceInItsPlace) {
  const Json answer =
      ask(R"({"prompt": [[1,2,3],[4,5]], "n": 2, "max_tokens": 3, "temperature": 0, "model": "alias"})");
  ASSERT_EQ(answer["choices"].size(), 4U);
  const auto text = [&](std::vector<Token> prompt) {
    return tokenizer.decode(expected_text(std::move(prompt), 3, {{49}}));
  };
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], i < 2 ? text({1, 2, 3}) : text({4, 5}));
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(answer["model"], "fake");
  EXPECT_EQ(answer["id"], "cmpl-id");
}

TEST_F(HandlersTest, OneTokenPromptsForkToo) {
  EXPECT_EQ(ask(R"({"prompt": [[1]], "n": 3, "max_tokens": 2})")["choices"].size(), 3U);
}

TEST_F(HandlersTest, EchoListsOneEntryATokenAlsoAtTheEndOfText) {
  const std::vector<Token> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  for (int repeat = 0; repeat < 2; ++repeat) {  // computed, then from memory
    const Json answer = ask(
        R"({"prompt": [[1,2,3,4,5,6,7,8,9,10,11,12]], "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": true, "seed": 1234})");
    const Json& lists = answer["choices"][0]["logprobs"];
    for (const char* const name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      EXPECT_EQ(lists[name].size(), 13U) << name;
    EXPECT_TRUE(lists["token_logprobs"][0].is_null());
    EXPECT_TRUE(lists["top_logprobs"][0].is_null());
    EXPECT_EQ(lists["token_logprobs"][5].get<float>(),
              score_of(hash_of(std::span(prompt).first(5)), prompt[5]));
  }
}

// What a search over the fake model gives, without an engine.
BeamSearch searched(const std::vector<Token>& prompt, BeamSearch::Options options) {
  BeamSearch search(std::move(options));
  while (!search.done()) {
    std::vector<std::vector<TokenLogprob>> next;
    for (const BeamSearch::Beam& beam : search.beams()) {
      std::vector<Token> context = prompt;
      for (const Token token : search.tokens(beam.last)) context.push_back(token);
      const std::uint32_t hash = hash_of(context);
      std::vector<float> logits(kVocabulary);
      for (std::size_t i = 0; i < logits.size(); ++i)
        logits[i] = static_cast<float>((hash >> (i % 8)) % 7);  // as FakeRunner's
      EXPECT_TRUE(top_logprobs(logits, search.candidates(), -1, next.emplace_back()));
    }
    search.advance(next);
  }
  return search;
}

TEST_F(HandlersTest, BeamSearchAnswersEachPromptWithItsBeams) {
  const std::vector<std::vector<Token>> prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {7}};
  for (const bool stream : {false, true}) {
    const auto responder =
        post(cat(R"({"prompt": [[1,2,3,4,5,6,7,8,9],[7]], "n": 3, "use_beam_search": true, "max_tokens": 9,
                     "length_penalty": 0.5, "stop_token_ids": [48], "temperature": 0.7, "logprobs": 2, "skip_special_tokens": false,
                     "stream_options": )",
                 stream ? R"({"include_usage": true}, "stream": true})" : "null}"));
    responder->wait();
    ASSERT_EQ(responder->status, 200) << responder->body;
    std::vector<Json> choices;
    Json usage;
    if (stream) {
      std::istringstream lines(responder->body);
      for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("data: {")) continue;
        const Json event = parse_json(line.substr(6), "event");
        for (const Json& choice : event["choices"]) choices.push_back(choice);
        if (event.contains("usage")) usage = event["usage"];
      }
      std::stable_sort(choices.begin(), choices.end(), [](const Json& a, const Json& b) {
        return a["index"].get<int>() < b["index"].get<int>();
      });
    } else {
      const Json answer = parse_json(responder->body, "answer");
      choices = answer["choices"].get<std::vector<Json>>();
      usage = answer["usage"];
    }
    ASSERT_EQ(choices.size(), 6U);
    std::size_t tokens = 0;
    for (std::size_t p = 0; p < 2; ++p) {
      const BeamSearch search = searched(
          prompts[p], {.width = 3, .max_new_tokens = 9, .length_penalty = 0.5, .end_tokens = {48, 49}});
      for (std::size_t i = 0; i < 3; ++i) {
        const BeamSearch::Answer& answer = search.answers()[i];
        std::vector<Token> expected = search.tokens(answer.last);
        tokens += expected.size();
        const Json& choice = choices[p * 3 + i];
        EXPECT_EQ(choice["logprobs"]["tokens"].size(), expected.size());
        float sum = 0;
        for (const Json& logprob : choice["logprobs"]["token_logprobs"]) sum += logprob.get<float>();
        EXPECT_NEAR(sum / std::sqrt(static_cast<float>(expected.size())), answer.score, 1e-5);
        EXPECT_EQ(choice["finish_reason"], answer.ended ? "stop" : "length");
        EXPECT_EQ(choice["stop_reason"], answer.ended && expected.back() == 48 ? Json(48) : Json());
        if (answer.ended) expected.pop_back();
        EXPECT_EQ(choice["text"], tokenizer.decode(expected));
      }
    }
    EXPECT_EQ(usage["completion_tokens"], tokens);
    EXPECT_EQ(usage["prompt_tokens"], 10);
  }
}

TEST_F(HandlersTest, AStepOfABeamSearchRunsWhatIsInNoFullBlock) {
  std::string prompt = "1";
  for (int i = 0; i < 99; ++i) prompt += ",2";
  ask(cat(R"({"prompt": [)", prompt,
          R"(], "n": 4, "use_beam_search": true, "ignore_eos": true, "max_tokens": 30})"));
  std::int64_t rows = 100;
  for (int length = 101; length < 130; ++length) rows += 4 * (length - (length - 1) / kBlock * kBlock);
  EXPECT_EQ(model.rows, rows);
  EXPECT_EQ(engine.status().counters.steps, 4 + 29) << "beams did not run together";  // 4 for the prompt
}

TEST_F(HandlersTest, OneBeamIsGreedyText) {
  const std::string request = R"({"prompt": [1,2,3], "max_tokens": 8, "n": 1, )";
  const Json greedy = ask(request + R"("temperature": 0})");
  const Json beam = ask(request + R"("use_beam_search": true, "length_penalty": 2})");
  EXPECT_EQ(beam["choices"], greedy["choices"]);
}

TEST_F(HandlersTest, ABeamSearchEchoesAndScoresItsPrompt) {
  const std::string fields =
      R"("prompt": [[1,2,3,4,5],[6]], "echo": true, "logprobs": 1, "use_beam_search": true, "n": 2)";
  const Json none = ask(cat("{", fields, R"(, "max_tokens": 0})"));
  const Json some = ask(cat("{", fields, R"(, "max_tokens": 3, "ignore_eos": true})"));
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t length = i < 2 ? 5 : 1;
    const Json& lists = some["choices"][i]["logprobs"];
    EXPECT_EQ(lists["tokens"].size(), length + 3);
    for (std::size_t t = 0; t < length; ++t)
      EXPECT_EQ(lists["token_logprobs"][t], none["choices"][i]["logprobs"]["token_logprobs"][t]);
  }
}

TEST_F(HandlersTest, AFailingStepFailsABeamSearch) {
  model.nan_hash = hash_of(
      std::vector<Token>{5, 6, searched({5, 6}, {.width = 3, .max_new_tokens = 1}).tokens(1).front()});
  const auto bad = post(R"({"prompt": [5,6], "n": 3, "use_beam_search": true, "max_tokens": 5})");
  bad->wait();
  EXPECT_EQ(bad->status, 500);
  EXPECT_NE(bad->body.find("NaN"), std::string::npos);
  engine.shut_down(std::chrono::seconds(5));
  EXPECT_EQ(engine.status().free_blocks, 200);
}

// Its steps go before what waits: with its place at the end of the line each would wait for all of them.
TEST_F(HandlersTest, ABeamSearchKeepsItsPlace) {
  const auto search = post(R"({"prompt": [1,2], "n": 2, "use_beam_search": true, "max_tokens": 4})");
  std::vector<std::shared_ptr<Recording>> others;
  for (int i = 0; i < 90; ++i)
    others.push_back(
        post(cat(R"({"prompt": [3,)", i % 49, R"(], "ignore_eos": true, "max_tokens": )", 100 + i, "}")));
  search->wait();
  EXPECT_EQ(search->status, 200);
  for (const auto& other : others) other->wait();
  EXPECT_LT(search->place, others[60]->place);
}

TEST_F(HandlersTest, WhoLeavesABeamSearchLeavesNothing) {
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    const auto responder =
        post(cat(R"({"prompt": [[)", i % 49,
                 R"(,2,3,4,5],[6]], "max_tokens": 150, "ignore_eos": true, "use_beam_search": true, "n": )",
                 2 + i % 3, "}"));
    for (auto spin = random() % 400; spin > 0; --spin) std::this_thread::yield();
    responder->leave();
    responder->wait();
  }
  engine.shut_down(std::chrono::seconds(30));
  const EngineStatus status = engine.status();
  EXPECT_EQ(status.free_blocks, status.blocks);
  EXPECT_EQ(status.running + status.waiting + status.queued, 0);
}

TEST_F(HandlersTest, BeamSearchesEndWithTheEngine) {
  const auto responder =
      post(R"({"prompt": [1], "max_tokens": 190, "ignore_eos": true, "use_beam_search": true, "n": 45})");
  engine.shut_down(std::chrono::seconds(0));
  responder->wait();
  EXPECT_NE(responder->body.find("\"finish_reason\":\"abort\""), std::string::npos) << responder->body;
}

TEST_F(HandlersTest, StreamsEndWithUsageAndDone) {
  const auto responder = post(
      R"({"prompt": [1,2], "max_tokens": 4, "temperature": 0, "stream": true, "stream_options": {"include_usage": true}, "ignore_eos": true})");
  responder->wait();
  EXPECT_EQ(responder->status, 200);
  EXPECT_NE(responder->body.find("\"completion_tokens\":4"), std::string::npos) << responder->body;
  EXPECT_TRUE(responder->body.ends_with("data: [DONE]\n\n"));
  EXPECT_NE(responder->body.find("\"finish_reason\":\"length\""), std::string::npos);
}

TEST_F(HandlersTest, AFailingStepFailsItsRequestsOnly) {
  model.fail_next = true;
  const auto responder = post(R"({"prompt": [1,2,3], "max_tokens": 3})");
  responder->wait();
  EXPECT_EQ(responder->status, 500);
  EXPECT_NE(responder->body.find("injected"), std::string::npos);
  ask(R"({"prompt": [1,2,3], "max_tokens": 3})");
  engine.shut_down(std::chrono::seconds(5));
  EXPECT_EQ(engine.status().free_blocks, 200);
}

TEST_F(HandlersTest, LogitsThatAreNoNumbersAreSaidToBe) {
  model.nan_hash = hash_of(std::vector<Token>{5, 6});
  const auto bad = post(R"({"prompt": [5,6], "max_tokens": 3, "temperature": 1})");
  const auto good = post(R"({"prompt": [5,7], "max_tokens": 3, "temperature": 1})");
  bad->wait();
  good->wait();
  EXPECT_EQ(bad->status, 500);
  EXPECT_NE(bad->body.find("NaN"), std::string::npos);
  EXPECT_EQ(good->status, 200);
}

TEST_F(HandlersTest, ParametersThatLeaveNoTokenAreTheClientsFault) {
  for (const char* const stream : {"true", "false"}) {
    const auto responder =
        post(cat(R"({"prompt": [1], "max_tokens": 3, "allowed_token_ids": [49], "min_tokens": 1, "stream": )",
                 stream, "}"));
    responder->wait();
    EXPECT_EQ(responder->status, 400);
    EXPECT_NE(responder->body.find("no token is allowed"), std::string::npos) << responder->body;
  }
}

TEST_F(HandlersTest, WhoLeavesIsCancelledAndLeavesNothing) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto responder = post(
        cat(R"({"prompt": [)", i % 49,
            R"(,2,3,4,5], "max_tokens": 150, "ignore_eos": true, "stream": true, "n": )", 1 + i % 3, "}"));
    for (auto spin = random() % 200; spin > 0; --spin) std::this_thread::yield();
    responder->leave();
    responder->wait();
  }
  engine.shut_down(std::chrono::seconds(30));
  const EngineStatus status = engine.status();
  EXPECT_EQ(status.free_blocks, status.blocks);
  EXPECT_EQ(status.running + status.waiting + status.queued, 0);
}

TEST_F(HandlersTest, RefusalsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "400 : "},
      {"[1]", "400 : "},
      {"{}", "400 prompt: "},
      {R"({"prompt": 5})", "400 prompt: "},
      {R"({"prompt": []})", "400 prompt: "},
      {R"({"prompt": [[]], "x": 1})", "accepted"},  // becomes BOS where the tokenizer has one
      {R"({"prompt": [50]})", "400 prompt: prompt: token 50 is not in the vocabulary of 50"},
      {R"({"prompt": [-1]})", "400 prompt: "},
      {R"({"prompt": [1e300]})", "400 prompt: "},
      {R"({"prompt": [1], "model": "other"})", "404 model: "},
      {R"({"prompt": [1], "max_tokens": 0})", "400 max_tokens: "},
      {R"({"prompt": [1], "max_tokens": 200})", "400 max_tokens: "},
      {R"({"prompt": [1], "max_tokens": "3"})", "400 max_tokens: "},
      {R"({"prompt": [1], "n": 0})", "400 n: "},
      {R"({"prompt": [1], "n": 100000})", "400 n: "},
      {R"({"prompt": [1], "temperature": -1})", "400 temperature: "},
      {R"({"prompt": [1], "logprobs": 21})", "400 logprobs: "},
      {R"({"prompt": [1], "suffix": "x"})", "400 suffix: "},
      {R"({"prompt": [1], "stop": [1]})", "400 stop: "},
      {R"({"prompt": [1], "stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})",
       "400 stop: "},
      {R"({"prompt": [1], "stream_options": {}})", "400 stream_options: "},
      {R"({"prompt": [1], "logit_bias": {"x": 1}})", "400 logit_bias: "},
      {R"({"prompt": [1], "seed": 1.5})", "400 seed: "},
      {R"({"prompt": [1], "use_beam_search": 1})", "400 use_beam_search: "},
      {R"({"prompt": [1], "length_penalty": 5.1})", "400 length_penalty: "},
      {R"({"prompt": [1], "length_penalty": "1"})", "400 length_penalty: "},
      {R"({"prompt": [1], "early_stopping": "never"})", "400 early_stopping: "},
      {R"({"prompt": [1], "use_beam_search": true, "n": 49})", "accepted"},
      {R"({"prompt": [1], "use_beam_search": true, "n": 50})",
       "400 n: n: 50 beams, expected at most 49 with 1 end tokens and a vocabulary of 50"},
      {R"({"prompt": [1], "use_beam_search": true, "n": 49, "stop_token_ids": [1,1]})", "400 n: "},
      {R"({"prompt": [1], "use_beam_search": true, "stop": "a"})", "400 stop: "},
      {R"({"prompt": [1], "use_beam_search": true, "repetition_penalty": 1.1})", "400 repetition_penalty: "},
      {R"({"prompt": [1], "use_beam_search": true, "presence_penalty": 1})", "400 presence_penalty: "},
      {R"({"prompt": [1], "use_beam_search": true, "frequency_penalty": 1})", "400 frequency_penalty: "},
      {R"({"prompt": [1], "use_beam_search": true, "min_tokens": 1})", "400 min_tokens: "},
      {R"({"prompt": [1], "use_beam_search": true, "logit_bias": {"1": 1}})", "400 logit_bias: "},
      {R"({"prompt": [1], "use_beam_search": true, "allowed_token_ids": [1]})", "400 allowed_token_ids: "},
      {R"({"prompt": [1], "use_beam_search": false, "min_tokens": 1})", "accepted"},
  };
  for (const auto& [body, expected] : cases)
    EXPECT_EQ(refusal(body).substr(0, std::string_view(expected).size()), expected) << body;
}

TEST_F(HandlersTest, LongTextsAreRefusedBeforeTheyAreTokens) {
  const std::string text(std::size_t{8} << 20, 'x');
  EXPECT_EQ(
      refusal(cat(R"({"prompt": ")", text, "\"}")),
      "400 prompt: This model's maximum context length is 200 tokens; the 8388608 bytes of prompt are more");
  try {
    post(cat(R"({"context": ")", text, R"(", "continuations": ["a", "b"]})"), handle_score);
    ADD_FAILURE() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.param, "context");
    EXPECT_EQ(error.code, "context_length_exceeded");
  }
}

TEST_F(HandlersTest, ModelsAreFoundByTheirNames) {
  context.model_names = {"models/fake 1", "alias"};
  const Json list = parse_json(models_json(context), "answer");
  ASSERT_EQ(list["data"].size(), 2U);
  for (const char* const id : {"models/fake 1", "models%2ffake%201", "models%2Ffake 1"})
    EXPECT_EQ(parse_json(model_json(context, id), "answer"), list["data"][0]) << id;
  EXPECT_EQ(parse_json(model_json(context, "%61lias"), "answer"), list["data"][1]);
  for (const char* const id : {"", "other", "models", "models/fake", "alias/", "ali%61s%", "alias%0", "%zz",
                               "%-1", "alias%00", "%FF%FE"}) {
    try {
      ADD_FAILURE() << id << ": " << model_json(context, id);
    } catch (const RequestError& error) {
      EXPECT_EQ(error.status, 404);
      EXPECT_EQ(error.param, "model");
      EXPECT_EQ(error.code, "model_not_found");
    }
  }
}

// The fake's 50 tokens are the end of text and "!" to "Q".
TEST_F(HandlersTest, ConstrainedTexts) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without a grammar engine";
  const GrammarCompiler grammars(tokenizer, model.vocabulary());
  context.grammars = &grammars;
  const auto texts = [&](const std::string& constraint) {
    std::vector<std::string> all;
    const Json answer =
        ask(R"({"prompt": [[1,2,3],[4]], "n": 3, "max_tokens": 20, "seed": 1, )" + constraint + "}");
    for (const Json& choice : answer["choices"]) {
      EXPECT_EQ(choice["finish_reason"], "stop") << choice;
      all.push_back(choice["text"]);
    }
    EXPECT_EQ(all.size(), 6U);
    return all;
  };
  for (const char* const constraint : {R"("guided_choice": ["12", "345", "A?"])",
                                       R"("structured_outputs": {"choice": ["12", "345", "A?"]})"})
    for (const std::string& text : texts(constraint))
      EXPECT_TRUE(text == "12" || text == "345" || text == "A?") << text;
  for (const char* const constraint :
       {R"("guided_regex": "[A-C]{2}-[78]")", R"("structured_outputs": {"regex": "[A-C]{2}-[78]"})",
        R"("guided_grammar": "root ::= [A-C] [A-C] \"-\" [78]")"})
    for (const std::string& text : texts(constraint)) {
      ASSERT_EQ(text.size(), 4U);
      EXPECT_TRUE(text[0] >= 'A' && text[1] <= 'C' && text[2] == '-' && (text[3] == '7' || text[3] == '8'))
          << text;
    }
  for (
      const char* const constraint :
      {R"("guided_json": {"type": "integer", "minimum": 10, "maximum": 13})",
       R"("guided_json": "{\"type\": \"integer\", \"minimum\": 10, \"maximum\": 13}")",
       R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [10, 11, 12, 13]}}})"})
    for (const std::string& text : texts(constraint)) {
      const auto value = parse_json(text, "text").get<int>();
      EXPECT_TRUE(value >= 10 && value <= 13) << text;
    }
  EXPECT_EQ(grammars.cached(), 6U);  // a schema as text has its own spaces
}

TEST_F(HandlersTest, ConstraintsThatCannotBeHeldToAreRefused) {
  EXPECT_EQ(refusal(R"({"prompt": [1], "guided_regex": "a"})"),
            "400 guided_regex: guided_regex: this server was built without constrained decoding");
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without a grammar engine";
  const GrammarCompiler grammars(tokenizer, model.vocabulary());
  context.grammars = &grammars;
  const std::pair<const char*, const char*> cases[] = {
      {R"("response_format": {"type": "text"})", "accepted"},
      {R"("response_format": null, "guided_json": null)", "accepted"},
      {R"("response_format": 5)", "400 response_format: "},
      {R"("response_format": {"type": "xml"})", "400 response_format: "},
      {R"("response_format": {"type": "json_schema"})", "400 response_format: "},
      // There are no braces in this vocabulary.
      {R"("response_format": {"type": "json_object"})", "400 response_format: response_format: no text fits"},
      {R"("structured_outputs": {})", "400 structured_outputs: "},
      {R"("structured_outputs": {"regex": 5})", "400 structured_outputs: "},
      {R"("structured_outputs": {"structural_tag": {}})", "400 structured_outputs: "},
      {R"("structured_outputs": {"regex": "1", "choice": ["1"]})", "400 structured_outputs: "},
      {R"("guided_regex": "1", "guided_choice": ["1"])",
       "400 guided_choice: guided_choice: beside guided_regex"},
      {R"("guided_regex": "(1")", "400 guided_regex: guided_regex: Regex parsing error at position 3"},
      {R"("guided_choice": "1")", "400 guided_choice: "},
      {R"("guided_choice": [])", "400 guided_choice: "},
      {R"("guided_grammar": "x")", "400 guided_grammar: "},
      {R"("guided_json": 5)", "400 guided_json: "},
      {R"("guided_regex": "1", "n": 2, "use_beam_search": true)",
       "400 guided_regex: guided_regex: this server"},
      {R"("guided_json": {"not": {}})", "400 guided_json: guided_json: JSON schema: `not` is not supported"},
  };
  for (const auto& [constraint, expected] : cases) {
    const std::string got = refusal(cat(R"({"prompt": [1], "max_tokens": 1, )", constraint, "}"));
    EXPECT_EQ(got.substr(0, std::string_view(expected).size()), expected) << constraint << ": " << got;
  }
}

// What is wrong shows only as the text grows: the client's fault all the same.
TEST_F(HandlersTest, ADeadEndIsTheClientsFault) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without a grammar engine";
  const GrammarCompiler grammars(tokenizer, model.vocabulary());
  context.grammars = &grammars;
  const auto whole = post(R"({"prompt": [1], "guided_grammar": "root ::= \"1\" x\nx ::= x"})");
  whole->wait();
  EXPECT_EQ(whole->status, 400) << whole->body;
  EXPECT_NE(whole->body.find("leaves no token"), std::string::npos) << whole->body;
  const auto stream =
      post(R"({"prompt": [1], "stream": true, "guided_grammar": "root ::= \"1\" x\nx ::= x"})");
  stream->wait();
  EXPECT_NE(stream->body.find("leaves no token"), std::string::npos) << stream->body;
  const auto banned = post(R"({"prompt": [1], "guided_choice": ["1"], "allowed_token_ids": [2]})");
  banned->wait();
  EXPECT_EQ(banned->status, 400) << banned->body;
}

TEST_F(HandlersTest, ScoresAreSumsOverTheContinuation) {
  const auto responder =
      post(R"({"context": [1,2,3,4,5,6,7,8,9], "continuations": [[10],[11,12],[10,13]]})", handle_score);
  responder->wait();
  const Json answer = parse_json(responder->body, "answer");
  const auto expected = [](std::vector<Token> context, const std::vector<Token>& more) {
    double sum = 0;
    for (const Token token : more) {
      sum += score_of(hash_of(context), token);
      context.push_back(token);
    }
    return sum;
  };
  const std::vector<Token> context = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(answer["data"][0]["logprob"], expected(context, {10}));
  EXPECT_EQ(answer["data"][1]["logprob"], expected(context, {11, 12}));
  EXPECT_EQ(answer["data"][2]["logprob"], expected(context, {10, 13}));
  EXPECT_EQ(answer["data"][1]["tokens"], 2);
}

class SmallCacheTest : public HandlersTest {
 protected:
  SmallCacheTest() : HandlersTest(10) {}
};

TEST_F(SmallCacheTest, RefusesABeamSearchThatCouldNotEnd) {
  const std::string request = R"({"prompt": [1,2,3], "ignore_eos": true, "use_beam_search": true, "n": 3)";
  const auto responder = post(request + R"(, "max_tokens": 38})");
  responder->wait();
  EXPECT_EQ(responder->status, 400);
  EXPECT_NE(responder->body.find("needs 11 KV blocks"), std::string::npos) << responder->body;
  EXPECT_EQ(model.rows, 0);
  // Three beams do not fit at once: they wait for each other.
  const Json answer = ask(request + R"(, "max_tokens": 37})");
  const BeamSearch search = searched({1, 2, 3}, {.width = 3, .max_new_tokens = 37});
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(answer["choices"][i]["text"], tokenizer.decode(search.tokens(search.answers()[i].last), true));
}

class FullQueueTest : public HandlersTest {
 protected:
  FullQueueTest() : HandlersTest(200, 0) {}
};

TEST_F(FullQueueTest, IsTold) { EXPECT_EQ(refusal(R"({"prompt": [1]})").substr(0, 3), "429"); }

class ShortQueueTest : public HandlersTest {
 protected:
  ShortQueueTest() : HandlersTest(200, 2) {}
};

TEST_F(ShortQueueTest, TakesAllPromptsOfARequestOrNone) {
  model.paused = true;
  const auto running = post(R"({"prompt": [1,2,3], "max_tokens": 1})");
  while (engine.status().queued > 0) std::this_thread::yield();
  const auto waiting = post(R"({"prompt": [4,5], "max_tokens": 1})");  // leaves room for one
  for (const char* const more : {"", R"(, "stream": true)", R"(, "n": 2)"})
    EXPECT_EQ(refusal(cat(R"({"prompt": [[6],[7]], "max_tokens": 5)", more, "}")).substr(0, 3),
              std::string_view(more).ends_with('2') ? "400" : "429")
        << more;
  try {
    post(R"({"context": [1], "continuations": [[2], [3]]})", handle_score);  // one tree
    post(R"({"context": [1], "continuations": [[2], [3]]})", handle_score);
    ADD_FAILURE() << "the queue is full";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status, 429);
  }
  EXPECT_EQ(metrics.prompt_tokens, 3 + 2 + 1);
  model.paused = false;
  running->wait();
  waiting->wait();
  engine.shut_down(std::chrono::seconds(10));
  EXPECT_EQ(engine.status().counters.prompt_tokens, 3 + 2 + 1) << "nothing of the refused has run";
}

}  // namespace
}  // namespace asynct::serve
