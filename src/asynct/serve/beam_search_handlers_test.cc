// Beam searches over an engine whose model is a fake.
#include <cmath>
#include <sstream>

#include "asynct/engine/allocation_counter.h"
#include "asynct/engine/beam_search.h"
#include "asynct/serve/handlers_testing.h"

namespace asynct::serve {
namespace {

using BeamSearchHandlersTest = HandlersTest;

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

TEST_F(BeamSearchHandlersTest, BeamSearchAnswersEachPromptWithItsBeams) {
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

TEST_F(BeamSearchHandlersTest, AStepOfABeamSearchRunsWhatIsInNoFullBlock) {
  std::string prompt = "1";
  for (int i = 0; i < 99; ++i) prompt += ",2";
  ask(cat(R"({"prompt": [)", prompt,
          R"(], "n": 4, "use_beam_search": true, "ignore_eos": true, "max_tokens": 30})"));
  std::int64_t rows = 100;
  for (int length = 101; length < 130; ++length) rows += 4 * (length - (length - 1) / kBlock * kBlock);
  EXPECT_EQ(model.rows, rows);
  EXPECT_EQ(engine.status().counters.steps, 4 + 29) << "beams did not run together";  // 4 for the prompt
}

TEST_F(BeamSearchHandlersTest, OneBeamIsGreedyText) {
  const std::string request = R"({"prompt": [1,2,3], "max_tokens": 8, "n": 1, )";
  const Json greedy = ask(request + R"("temperature": 0})");
  const Json beam = ask(request + R"("use_beam_search": true, "length_penalty": 2})");
  EXPECT_EQ(beam["choices"], greedy["choices"]);
}

TEST_F(BeamSearchHandlersTest, ABeamSearchEchoesAndScoresItsPrompt) {
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

TEST_F(BeamSearchHandlersTest, AFailingStepFailsABeamSearch) {
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
TEST_F(BeamSearchHandlersTest, ABeamSearchKeepsItsPlace) {
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

TEST_F(BeamSearchHandlersTest, WhoLeavesABeamSearchLeavesNothing) {
  leave_often(500, 400, [](int i) {
    return cat(R"({"prompt": [[)", i % 49,
               R"(,2,3,4,5],[6]], "max_tokens": 150, "ignore_eos": true, "use_beam_search": true, "n": )",
               2 + i % 3, "}");
  });
}

// Whichever allocation of the engine's thread fails between the model's first, third or last run and the end
// of the next: the search is answered, once, and the next one is as good as ever.
TEST_F(BeamSearchHandlersTest, ABeamSearchThatRunsOutOfMemoryEnds) {
  const std::string request =
      R"({"prompt": [[1,2,3],[4]], "n": 3, "use_beam_search": true, "max_tokens": 4, "ignore_eos": true, "logprobs": 1})";
  const Json expected = ask(request)["choices"];
  int steps = 0;
  int failing = 0;
  after_step = [&] {
    if (steps > failing || steps == 4) fail_allocation(0);
  };
  int failures = 0;
  for (const int step : {1, 3, 4})
    for (int nth = 1; nth <= 250; ++nth) {
      steps = 0;
      failing = step;
      model.on_logits = [&] {
        if (++steps == step) fail_allocation(nth);
      };
      const auto responder = post(request);
      responder->wait();
      if (responder->status == 200) {
        EXPECT_EQ(parse_json(responder->body, "answer")["choices"], expected);
      } else {
        ++failures;
        EXPECT_EQ(responder->status, 500) << step << " " << nth;
        EXPECT_NE(responder->body.find("bad_alloc"), std::string::npos) << responder->body;
      }
      model.on_logits = nullptr;
      ASSERT_EQ(ask(request)["choices"], expected) << step << " " << nth;
    }
  EXPECT_GT(failures, 100);
  expect_nothing_left();
}

TEST_F(BeamSearchHandlersTest, BeamSearchesEndWithTheEngine) {
  const auto responder =
      post(R"({"prompt": [1], "max_tokens": 190, "ignore_eos": true, "use_beam_search": true, "n": 45})");
  engine.shut_down(std::chrono::seconds(0));
  responder->wait();
  EXPECT_NE(responder->body.find("\"finish_reason\":\"abort\""), std::string::npos) << responder->body;
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

}  // namespace
}  // namespace asynct::serve
