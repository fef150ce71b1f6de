// The protocol over an engine whose model is a fake: what clients are told, and what is left behind.
#include "asynct/serve/handlers_testing.h"
#include "asynct/serve/models.h"
#include "asynct/serve/score.h"

namespace asynct::serve {
namespace {

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
  leave_often(1000, 200, [](int i) {
    return cat(R"({"prompt": [)", i % 49,
               R"(,2,3,4,5], "max_tokens": 150, "ignore_eos": true, "stream": true, "n": )", 1 + i % 3, "}");
  });
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

TEST_F(HandlersTest, ScoringNamesTheTextThatIsTooLong) {
  const std::string text(std::size_t{1} << 12, 'x');
  std::string ids = "1";
  for (int i = 0; i < 200; ++i) ids += ",2";  // 201: the last is only predicted
  const std::pair<std::string, const char*> cases[] = {
      {cat(R"("context": ")", text, R"(", "continuations": ["a", "b"])"), "context: more than 201 tokens"},
      {cat(R"("context": "a", "continuations": ["a", ")", text, R"("])"),
       "continuations[1]: more than 201 tokens with the context"},
      {cat(R"("context": "", "continuations": [")", text, R"("])"),
       "continuations[0]: more than 201 tokens with the context"},
      {cat(R"("context": [)", ids, R"(,3], "continuations": [[1]])"),
       "context: 202 tokens, expected at most 201"},
      {cat(R"("context": [1], "continuations": [[1], [2], [)", ids, "]]"),
       "continuations[2]: more than 201 tokens with the context"},
      {cat(R"("context": [1], "continuations": [[1], [)", ids, ",3]]"),
       "continuations[1]: more than 201 tokens with the context"},
  };
  for (const auto& [body, expected] : cases) {
    try {
      post(cat("{", body, "}"), handle_score);
      ADD_FAILURE() << "accepted: " << expected;
    } catch (const RequestError& error) {
      EXPECT_EQ(std::string_view(error.what()), expected);
      EXPECT_EQ(error.param, std::string_view(expected).substr(0, std::string_view(expected).find(':')));
    }
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
