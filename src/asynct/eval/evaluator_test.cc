// The evaluator against models whose answers are known.

#include "asynct/eval/evaluator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/base/mapped_file.h"
#include "asynct/eval/dataset.h"
#include "asynct/eval/fake_model.h"
#include "asynct/eval/output_file.h"
#include "asynct/eval/progress_file.h"
#include "asynct/eval/prompts.h"
#include "asynct/eval/report.h"
#include "asynct/eval/sha256.h"

namespace asynct {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The number that the first 32 bits of a text's SHA-256 make.
std::uint32_t hash_number(const std::string& text) {
  return static_cast<std::uint32_t>(std::stoul(sha256_hex(text).substr(0, 8), nullptr, 16));
}

/// The answers of HashModel in tests/diff/make_eval_golden.py.
SequenceScore hash_score(const std::string& context, const std::string& continuation) {
  if (context == "<|endoftext|>") return {-2.0 * static_cast<double>(continuation.size()), false};
  const std::uint32_t number = hash_number(context + '\0' + continuation);
  return {-static_cast<double>(number % 1000) / 8.0, number % 7 == 0};
}

std::string hash_text(const std::string& prompt) {
  const std::uint32_t number = hash_number(prompt) % 40;
  switch (number % 4) {
    case 0:
      return cat("#### ", number);
    case 1:
      return cat("so ", number, ". The answer is ", number, ".");
    case 2:
      return cat("$", number, ".");
    default:
      return "none";
  }
}

EvalOptions options_for(std::vector<std::string> tasks) {
  EvalOptions options;
  options.tasks = std::move(tasks);
  options.data = "data";
  options.threads = 2;
  options.model_key = "model";
  return options;
}

double score_of(const EvalResult& result, const std::string& task, Metric metric,
                const std::string& filter = "none") {
  for (const TaskResult& entry : result.tasks)
    if (entry.task->name == task)
      for (const Score& score : entry.scores)
        if (score.metric == metric && score.filter == filter) return score.value;
  ADD_FAILURE() << "no score of " << task;
  return -1;
}

/// A file name of this process that is removed at the end.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name)
      : path_(
            (std::filesystem::temp_directory_path() / cat("asynct_eval_", ::getpid(), "_", name)).string()) {}
  ~ScratchFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  bool exists() const { return std::filesystem::exists(path_); }
  std::string text() const { return read_file(path_, std::size_t{1} << 28); }

 private:
  std::string path_;
};

std::vector<Json> json_lines(const std::string& text) {
  std::istringstream lines(text);
  std::vector<Json> out;
  for (std::string line; std::getline(lines, line);) out.push_back(parse_json(line, "line"));
  return out;
}

/// What HashModel's digest() makes of a task's samples.
std::string digest(const std::vector<Json>& samples, const std::string& task) {
  Sha256 hash;
  const auto add = [&](const std::string& part) { hash.update(part + '\0'); };
  for (const Json& sample : samples) {
    if (sample.at("task") != task) continue;
    for (const Json& arguments : sample.at("arguments"))
      for (const Json& argument : arguments) add(argument.is_string() ? argument.get<std::string>() : "");
    const bool text = sample.at("metrics")[0] == "exact_match";
    for (const Json& filtered : sample.at("filtered_resps")) add(text ? filtered.get<std::string>() : "");
    for (const char* field : {"target", "filter", "prompt_hash"}) add(sample.at(field).get<std::string>());
  }
  return hash.hex();
}

/// Every number under `expected` is under `found` too, equal to 12 digits; texts are equal.
void expect_covers(const Json& found, const Json& expected, const std::string& where) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      ASSERT_TRUE(found.contains(key)) << where << " lacks " << key;
      expect_covers(found.at(key), value, cat(where, "/", key));
    }
  } else if (expected.is_number()) {
    const double value = expected.get<double>();
    EXPECT_NEAR(found.get<double>(), value, 1e-12 * std::abs(value)) << where;
  } else {
    EXPECT_EQ(found, expected) << where;
  }
}

TEST(Evaluator, EqualsLmEvalOnAllTasks) {
  for (const Json& golden : parse_json_file("tests/golden/eval_lm_eval.json")) {
    const Json& run = golden.at("run");
    const std::string where = dump_json(run);
    ScratchFile samples("golden.jsonl");
    EvalOptions options = options_for(run.at("tasks").get<std::vector<std::string>>());
    if (run.contains("limit")) options.limit = run.at("limit").get<double>();
    if (run.contains("num_fewshot")) options.shots = run.at("num_fewshot").get<int>();
    options.samples = samples.path();
    FakeModel model(hash_score, hash_text);
    model.max_length_ = std::int64_t{1} << 30;
    const EvalResult result = evaluate(model, options);

    const Json report = parse_json(report_json(result, {.model = "fake"}), "report");
    for (const char* table :
         {"results", "groups", "versions", "n-shot", "higher_is_better", "n-samples", "group_subtasks"})
      if (golden.contains(table)) expect_covers(report.at(table), golden.at(table), cat(where, " ", table));
    const auto lines = json_lines(samples.text());
    for (const auto& [task, hash] : golden.at("samples").items())
      EXPECT_EQ(digest(lines, task), hash.get<std::string>()) << where << " " << task;
  }
}

TEST(Evaluator, GoldAnswersScoreEverything) {
  // The whole texts (context and right continuation) of all documents, and the answers by question.
  std::unordered_set<std::string> right;
  std::unordered_map<std::string, std::string> answers;
  DataDirectory data("data");
  const std::vector<std::string> names = {"arc_easy", "arc_challenge", "hellaswag",
                                          "piqa",     "winogrande",    "boolq"};
  for (const TaskSpec* task : select_tasks(names).tasks) {
    PromptBuilder prompts(*task, 0, {});
    for (const Example& document : data.documents(*task)) {
      const auto contexts = prompts.next(document);
      const auto gold = static_cast<std::size_t>(document.gold);
      right.insert(contexts[contexts.size() > 1 ? gold : 0] + continuation(*task, document, gold));
    }
  }
  for (const TaskSpec* task : select_tasks(std::vector<std::string>{"gsm8k", "gsm8k_cot"}).tasks)
    for (const Example& document : data.documents(*task))
      answers[document.text] =
          task->name == "gsm8k" ? document.target : cat("The answer is ", document.target, ".");

  FakeModel model(
      [&](const std::string& context, const std::string& continuation) {
        return SequenceScore{right.contains(context + continuation) ? 0.0 : -1e6, false};
      },
      [&](const std::string& prompt) {
        const std::size_t first = prompt.rfind("Question: "), second = prompt.rfind("Q: ");
        const std::size_t at = first == std::string::npos ? second : first;
        return answers.at(prompt.substr(at));
      });
  const EvalResult choices = evaluate(model, options_for(names));
  for (const std::string& name : names) EXPECT_EQ(score_of(choices, name, Metric::acc), 1.0) << name;
  for (const char* name : {"arc_easy", "arc_challenge", "hellaswag", "piqa"})
    EXPECT_EQ(score_of(choices, name, Metric::acc_norm), 1.0) << name;

  const EvalResult texts = evaluate(model, options_for({"gsm8k", "gsm8k_cot"}));
  for (const char* name : {"gsm8k", "gsm8k_cot"})
    for (const char* filter : {"strict-match", "flexible-extract"})
      EXPECT_EQ(score_of(texts, name, Metric::exact_match, filter), 1.0) << name << filter;
  EXPECT_EQ(texts.tasks[0].effective, 1319u);
}

TEST(Evaluator, ARandomModelScoresChance) {
  FakeModel model(hash_score, hash_text);
  const EvalResult result = evaluate(model, options_for({"arc_easy", "winogrande", "mmlu"}));
  EXPECT_NEAR(score_of(result, "arc_easy", Metric::acc), 0.25, 0.03);
  EXPECT_NEAR(score_of(result, "winogrande", Metric::acc), 0.5, 0.05);
  ASSERT_EQ(result.groups.size(), 5u);
  EXPECT_EQ(result.groups[0].group->name, "mmlu");
  EXPECT_EQ(result.groups[0].documents, 14042u);
  EXPECT_NEAR(result.groups[0].scores[0].value, 0.25, 0.015);
}

TEST(Evaluator, ATaskIsOneCall) {
  FakeModel model(hash_score);
  evaluate(model, options_for({"arc_easy"}));
  EXPECT_EQ(model.calls_, 1);
}

TEST(Evaluator, WindowsPredictEachTokenOnce) {
  // -2 a byte: whatever the windows, the sums are the same.
  FakeModel model([](const std::string&, const std::string& scored) {
    return SequenceScore{-2.0 * static_cast<double>(scored.size()), false};
  });
  EvalOptions options = options_for({"wikitext"});
  options.limit = 3;
  const double whole = score_of(evaluate(model, options), "wikitext", Metric::byte_perplexity);
  for (const std::int64_t length : {1, 7, 100, 4096}) {
    model.max_length_ = length;
    EXPECT_DOUBLE_EQ(score_of(evaluate(model, options), "wikitext", Metric::byte_perplexity), whole)
        << length;
  }
}

TEST(Evaluator, Limits) {
  FakeModel model(hash_score);
  EvalOptions options = options_for({"arc_challenge"});
  for (const auto& [limit, documents] : {std::pair(10.0, 10u), std::pair(0.01, 12u), std::pair(1.0, 1u),
                                         std::pair(2.9, 2u), std::pair(1e6, 1172u)}) {
    options.limit = limit;
    const EvalResult result = evaluate(model, options);
    EXPECT_EQ(result.tasks[0].effective, documents) << limit;
    EXPECT_EQ(result.tasks[0].original, 1172u);
  }
  options.limit = 0;
  EXPECT_EQ(error_of([&] { evaluate(model, options); }), "--limit: expected a number above 0, found 0");
}

TEST(Evaluator, OneDocumentHasNoError) {
  FakeModel model(hash_score);
  EvalOptions options = options_for({"arc_easy"});
  options.limit = 1;
  const EvalResult result = evaluate(model, options);
  EXPECT_FALSE(result.tasks[0].scores[0].error);
  EXPECT_NE(report_table(result).find("N/A"), std::string::npos);
}

TEST(Evaluator, PromptsLongerThanTheContext) {
  std::size_t longest = 0;
  FakeModel model(
      [&](const std::string& context, const std::string& continuation) {
        longest = std::max(longest, context.size() + continuation.size());
        return SequenceScore{-1, false};
      },
      [&](const std::string& prompt) {
        longest = std::max(longest, prompt.size());
        return std::string("1");
      });
  model.max_length_ = 300;
  EvalOptions options = options_for({"boolq"});
  options.limit = 20;
  const std::string message = error_of([&] { evaluate(model, options); });
  EXPECT_TRUE(message.starts_with("task boolq: ")) << message;
  EXPECT_NE(message.find("do not fit the model's context of 300 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("--truncate"), std::string::npos) << message;
  options.truncate = true;
  evaluate(model, options);
  EXPECT_EQ(longest, 301u);  // the last token is predicted, never an input

  longest = 0;
  model.max_length_ = 400;
  options.tasks = {"gsm8k"};
  evaluate(model, options);
  EXPECT_EQ(longest, 144u);  // 256 are for new tokens
  options.truncate = false;
  EXPECT_NE(error_of([&] { evaluate(model, options); }).find("with 256 new ones"), std::string::npos);
  model.max_length_ = 256;
  options.truncate = true;
  EXPECT_NE(error_of([&] { evaluate(model, options); }).find("leave no room for a prompt"),
            std::string::npos);
}

TEST(Evaluator, InterruptedRunsResume) {
  ScratchFile progress("run.progress"), samples("run.jsonl"), whole_samples("whole.jsonl");
  EvalOptions options = options_for({"arc_easy", "gsm8k", "piqa"});
  options.limit = 50;
  options.samples = whole_samples.path();
  FakeModel whole(hash_score, hash_text);
  const EvalResult expected = evaluate(whole, options);

  options.samples = samples.path();
  options.progress = progress.path();
  FakeModel model(hash_score, hash_text);
  int runs = 0;
  for (EvalResult result;; options.resume = true) {
    model.answered_ = 0;
    model.stops_after_ = 83;
    result = evaluate(model, options);
    ++runs;
    if (!result.interrupted) {
      EXPECT_EQ(report_json(result, {}).substr(0, 2000), report_json(expected, {}).substr(0, 2000));
      break;
    }
    EXPECT_TRUE(progress.exists());
    EXPECT_FALSE(result.stopped_in.empty());
    ASSERT_LT(runs, 10);
  }
  EXPECT_EQ(runs, 5);  // 200 + 50 + 100 requests, 83 a run
  EXPECT_EQ(samples.text(), whole_samples.text());
  EXPECT_TRUE(progress.exists());  // the report is not stored yet
  remove_progress(options);
  EXPECT_FALSE(progress.exists());
}

TEST(Evaluator, ResumeRefusesAnotherRun) {
  ScratchFile progress("other.progress");
  EvalOptions options = options_for({"arc_easy"});
  options.limit = 50;
  options.progress = progress.path();
  FakeModel model(hash_score);
  model.stops_after_ = 20;
  EXPECT_TRUE(evaluate(model, options).interrupted);
  options.resume = true;
  EvalOptions other = options;
  other.limit = 40;
  EXPECT_NE(error_of([&] { evaluate(model, other); }).find("arc_easy with other requests"),
            std::string::npos);
  other = options;
  other.model_key = "another";
  EXPECT_NE(error_of([&] { evaluate(model, other); }).find("made with another model"), std::string::npos);
  other = options;
  other.bos = BosMode::always;
  EXPECT_NE(error_of([&] { evaluate(model, other); }).find("arc_easy with other requests"),
            std::string::npos);

  std::ofstream(progress.path(), std::ios::app) << "{\"request\": 3, \"logp";  // a crash cut the last line
  model.answered_ = 0;
  model.stops_after_ = -1;
  EXPECT_FALSE(evaluate(model, options).interrupted);
  EXPECT_EQ(model.answered_, 180);

  for (const char* cut : {"", "{\"asynct_eval"}) {  // the disk was full before the first line was out
    std::ofstream(progress.path()) << cut;
    EXPECT_EQ(evaluate(model, options).tasks.size(), 1U);
  }
  std::ofstream(progress.path()) << "hello";
  EXPECT_NE(error_of([&] { evaluate(model, options); }).find("not the progress file"), std::string::npos);
  std::ofstream(progress.path()) << "hello\n";
  EXPECT_NE(error_of([&] { evaluate(model, options); }).find("not the progress file"), std::string::npos);
  options.progress.clear();
  EXPECT_NE(error_of([&] { evaluate(model, options); }).find("--resume needs"), std::string::npos);
}

TEST(Evaluator, SamplesHaveLmEvalsFields) {
  ScratchFile samples("fields.jsonl");
  EvalOptions options = options_for({"winogrande"});
  options.limit = 1;
  options.samples = samples.path();
  FakeModel model([](const std::string& context, const std::string&) {
    return SequenceScore{context.ends_with("Maria") ? -1.5 : -2, true};
  });
  evaluate(model, options);
  const auto lines = json_lines(samples.text());
  ASSERT_EQ(lines.size(), 1u);
  const Json expected = parse_json(R"({"doc_id": 0,
    "doc": {"sentence": "Sarah was a much better surgeon than Maria so _ always got the easier cases.", "option1": "Sarah", "option2": "Maria", "answer": "2"},
    "target": "always got the easier cases.",
    "arguments": {"gen_args_0": {"arg_0": "Sarah was a much better surgeon than Maria so Sarah", "arg_1": " always got the easier cases."},
                  "gen_args_1": {"arg_0": "Sarah was a much better surgeon than Maria so Maria", "arg_1": " always got the easier cases."}},
    "resps": [[["-2.0", "True"]], [["-1.5", "True"]]], "filtered_resps": [["-2.0", "True"], ["-1.5", "True"]],
    "filter": "none", "metrics": ["acc"],
    "doc_hash": "62d625e23b0883658b0d294bdd30125e28c9d8ebecb11a21bdd4345c9a7694cf",
    "prompt_hash": "661ccece6fed4147d0c129db906b2dec86490bd9f520717c8cebe010eb3e3df1",
    "target_hash": "85a2a1bd3293fb7367fc630cef4752be8223c1b4142b62116747b5155c508854",
    "acc": 1.0, "task": "winogrande"})",
                                   "expected");
  EXPECT_EQ(dump_json(lines[0]), dump_json(expected));
}

TEST(OutputFile, IsWholeOrAbsent) {
  ScratchFile target("whole.txt");
  {
    OutputFile file(target.path());
    file.write("abc");
    EXPECT_FALSE(target.exists());
  }
  EXPECT_FALSE(target.exists());
  OutputFile file(target.path());
  file.write("abc");
  file.commit();
  EXPECT_EQ(target.text(), "abc");
}

TEST(OutputFile, LinksAndModesStay) {
  namespace fs = std::filesystem;
  ScratchFile target("target.txt"), link("link.txt");
  fs::create_symlink(fs::path(target.path()).filename(), link.path());  // to a file that is not there yet
  EXPECT_EQ(resolve_output(link.path()), resolve_output(target.path()));
  const auto write = [&](const std::string& text) {
    OutputFile file(link.path());
    file.write(text);
    file.commit();
  };
  write("one");
  EXPECT_TRUE(fs::is_symlink(link.path()));
  EXPECT_EQ(target.text(), "one");
  fs::permissions(target.path(), fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  const fs::perms before = fs::status(target.path()).permissions();
  write("two");
  EXPECT_TRUE(fs::is_symlink(link.path()));
  EXPECT_EQ(target.text(), "two");
  EXPECT_EQ(fs::status(target.path()).permissions(), before);
}

TEST(OutputFile, LinksInACircle) {
  ScratchFile one("circle1"), two("circle2");
  std::filesystem::create_symlink(one.path(), two.path());
  std::filesystem::create_symlink(two.path(), one.path());
  EXPECT_NE(error_of([&] { OutputFile{one.path()}; }), "no error");
}

TEST(ProgressFile, OneRunAtATime) {
  ScratchFile path("locked.progress");
  {
    const ProgressFile first(path.path(), "model", /*resume=*/false);
    EXPECT_NE(error_of([&] { ProgressFile(path.path(), "model", true); }).find("another run"),
              std::string::npos);
    ProgressFile::remove(path.path());
    EXPECT_TRUE(path.exists());
  }
  ProgressFile::remove(path.path());
  EXPECT_FALSE(path.exists());
  ProgressFile::remove(path.path());
  EXPECT_FALSE(path.exists());
}

TEST(Evaluator, AFailingTaskKeepsThoseBeforeIt) {
  ScratchFile samples("failed.jsonl");
  EvalOptions options = options_for({"piqa", "gsm8k"});
  options.limit = 5;
  options.samples = samples.path();
  FakeModel model(hash_score, [](const std::string&) -> std::string { throw std::bad_alloc(); });
  const EvalResult result = evaluate(model, options);
  ASSERT_EQ(result.tasks.size(), 1U);
  EXPECT_EQ(result.stopped_in, "gsm8k");
  EXPECT_FALSE(result.interrupted);
  EXPECT_THROW(std::rethrow_exception(result.failure), std::bad_alloc);
  EXPECT_EQ(json_lines(samples.text()).size(), 5U);
  options.tasks = {"gsm8k", "piqa"};
  EXPECT_THROW(evaluate(model, options), std::bad_alloc);  // nothing to keep
}

TEST(Evaluator, ShotFilesAreReadBeforeTheFirstTask) {
  EvalOptions options = options_for({"arc_easy", "mmlu_anatomy"});
  options.limit = 1;
  options.shots = 6;
  FakeModel model(hash_score);
  EXPECT_EQ(error_of([&] { evaluate(model, options); }),
            "task mmlu_anatomy: 6 shots asked for, but the pool has 5 documents");
  EXPECT_EQ(model.calls_, 0);
}

TEST(OutputFile, TellsWhatIsWrong) {
  EXPECT_EQ(error_of([] { OutputFile("/nonexistent/x.json"); }),
            "/nonexistent/x.json: cannot write: No such file or directory");
  EXPECT_EQ(error_of([] { OutputFile("/tmp"); }), "/tmp: is a directory, expected a file to write");
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  EXPECT_EQ(error_of([] {
              OutputFile file("/dev/full");
              file.write(std::string(1 << 20, 'x'));
              file.commit();
            }),
            "/dev/full: cannot write: No space left on device");
}

TEST(Encoding, BosModes) {
  const Tokenizer plain = byte_tokenizer(false), adds = byte_tokenizer(true);
  const std::vector<Token> without = {'h', 'i'}, with = {256, 'h', 'i'};
  EXPECT_EQ(PromptEncoder(plain, BosMode::tokenizer).encode("hi"), without);
  EXPECT_EQ(PromptEncoder(plain, BosMode::always).encode("hi"), with);
  EXPECT_EQ(PromptEncoder(plain, BosMode::never).encode("hi"), without);
  EXPECT_EQ(PromptEncoder(adds, BosMode::tokenizer).encode("hi"), with);
  EXPECT_EQ(PromptEncoder(adds, BosMode::always).encode("hi"), with);
  EXPECT_EQ(PromptEncoder(adds, BosMode::never).encode("hi"), without);
  EXPECT_EQ(PromptEncoder(adds, BosMode::tokenizer).encode("<|endoftext|>hi"), with);  // not twice
}

TEST(Encoding, SpacesMoveToTheContinuation) {
  const Tokenizer tokenizer = byte_tokenizer();
  const PromptEncoder encoder(tokenizer, BosMode::tokenizer);
  const auto pairs = encoder.encode_pairs("a \n", {"b"});
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].context, (std::vector<Token>{'a'}));
  EXPECT_EQ(pairs[0].continuation, (std::vector<Token>{' ', '\n', 'b'}));
  const auto empty = encoder.encode_pairs("", {"b"});
  EXPECT_EQ(empty[0].context, (std::vector<Token>{256}));
  EXPECT_EQ(empty[0].continuation, (std::vector<Token>{'b'}));
  EXPECT_EQ(encoder.encode_pairs(" ", {"b"})[0].continuation, (std::vector<Token>{' ', 'b'}));
}

TEST(Encoding, Windows) {
  const Tokenizer tokenizer = byte_tokenizer();
  const PromptEncoder encoder(tokenizer, BosMode::tokenizer);
  const auto windows = encoder.encode_windows("abcdefgh", 3);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].tokens, (std::vector<Token>{256, 'a', 'b', 'c'}));
  EXPECT_EQ(windows[1].tokens, (std::vector<Token>{'c', 'd', 'e', 'f'}));
  EXPECT_EQ(windows[2].tokens, (std::vector<Token>{'e', 'f', 'g', 'h'}));  // the last one overlaps
  EXPECT_EQ(windows[2].scored, 2);
  EXPECT_TRUE(encoder.encode_windows("", 3).empty());
}

}  // namespace
}  // namespace asynct
