// Tasks and their data: prompts, shots, page splitting, broken files, names.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"
#include "asynct/eval/dataset.h"
#include "asynct/eval/filters.h"
#include "asynct/eval/prompts.h"
#include "asynct/eval/sha256.h"
#include "asynct/eval/tasks.h"

namespace asynct {
namespace {

const TaskSpec& task(const std::string& name) {
  return *select_tasks(std::vector<std::string>{name}).tasks.at(0);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The rows of a CSV file without its header.
std::vector<std::vector<std::string>> read_csv(const std::string& path) {
  std::istringstream text(read_file(path, 1 << 20));
  std::vector<std::vector<std::string>> rows;
  std::string line, cell;
  std::getline(text, line);
  while (std::getline(text, line)) {
    std::istringstream cells(line);
    rows.emplace_back();
    while (std::getline(cells, cell, ',')) rows.back().push_back(cell);
  }
  return rows;
}

/// A data directory made for one test.
class Scratch {
 public:
  Scratch() { std::filesystem::create_directories(path_); }
  ~Scratch() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    const auto path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / cat("asynct_data_test_", ::getpid());
};

TEST(Gsm8k, PromptsAndTargetsEqualTheTables) {
  DataDirectory data("data");
  const TaskSpec& gsm8k = task("gsm8k");
  const auto documents = data.documents(gsm8k);
  const auto pool = data.shot_pool(gsm8k);
  ASSERT_EQ(documents.size(), 1319u);
  ASSERT_EQ(pool.size(), 7473u);
  const auto hashes = read_csv("data/gsm8k/gsm8k_prompts5_sha256.csv");
  const auto shots = read_csv("data/gsm8k/gsm8k_fewshot5_seed1234.csv");
  ASSERT_EQ(hashes.size(), 1319u);
  ASSERT_EQ(shots.size(), 1319u);
  PromptBuilder prompts(gsm8k, 5, pool);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::string prompt = prompts.next(documents[i]).at(0);
    ASSERT_EQ(prompts.drawn().size(), 5u);
    for (std::size_t shot = 0; shot < 5; ++shot) ASSERT_EQ(cat(prompts.drawn()[shot]), shots[i][shot + 1]);
    ASSERT_EQ(sha256_hex(prompt), hashes[i][1]) << i;
    ASSERT_EQ(cat(prompt.size()), hashes[i][2]);
    ASSERT_EQ(normalize_answer(documents[i].target), hashes[i][3]);
  }
}

TEST(Tasks, DocumentsOfEachAreThere) {
  DataDirectory data("data");
  const std::pair<const char*, std::size_t> counts[] = {
      {"gsm8k_cot", 1319},  {"arc_easy", 2376}, {"arc_challenge", 1172},  {"hellaswag", 1000}, {"piqa", 1838},
      {"winogrande", 1267}, {"boolq", 3270},    {"lambada_openai", 5153}, {"wikitext", 62}};
  for (const auto& [name, count] : counts) EXPECT_EQ(data.documents(task(name)).size(), count) << name;
  std::size_t mmlu = 0;
  const auto selection = select_tasks(std::vector<std::string>{"mmlu"});
  ASSERT_EQ(selection.tasks.size(), 57u);
  for (const TaskSpec* subject : selection.tasks) {
    mmlu += data.documents(*subject).size();
    EXPECT_EQ(data.shot_pool(*subject).size(), 5u);
  }
  EXPECT_EQ(mmlu, 14042u);
}

TEST(Tasks, ArcRequests) {
  DataDirectory data("data");
  std::size_t easy = 0, challenge = 0;
  for (const Example& document : data.documents(task("arc_easy"))) easy += document.choices.size();
  for (const Example& document : data.documents(task("arc_challenge"))) challenge += document.choices.size();
  EXPECT_EQ(easy, 9501u);
  EXPECT_EQ(challenge, 4687u);
}

TEST(Tasks, WikitextPagesWordsAndBytes) {
  DataDirectory data("data");
  std::int64_t words = 0, bytes = 0;
  for (const Example& page : data.documents(task("wikitext"))) words += page.words, bytes += page.bytes;
  EXPECT_EQ(words, 241335);
  EXPECT_EQ(bytes, 1290527);
}

TEST(Tasks, WikitextDetokenizes) {
  EXPECT_EQ(wikitext_detokenize(" = = Title = = \n A \" quoted one \" ( in 1 @,@ 000 ) , it 's B @-@ C . \n"),
            " == Title ==\nA \"quoted one\" (in 1,000), it's B-C.\n");
  EXPECT_EQ(wikitext_detokenize("' a ' [ b ] { c } ( d"), "'a' [b] {c} ( d");
  EXPECT_EQ(wikitext_detokenize("players ' /' 5/ N x"), "players'/'[0-9]/ 1 x");
  EXPECT_EQ(wikitext_detokenize("12 \u00b0 N of"), "12\u00b0N of");
}

TEST(Tasks, HellaswagCleans) {
  EXPECT_EQ(hellaswag_clean(" Baking [title] Mix  it [step] well [substeps]  now "),
            "Baking. Mix it well  now");
  EXPECT_EQ(hellaswag_clean("[header] a [open\nline] b"), " a [open\nline] b");
}

TEST(Tasks, HellaswagInTheHubsForm) {
  Scratch scratch;
  scratch.write(
      "hellaswag/hellaswag_validation.jsonl",
      R"({"ind": 1, "activity_label": "Roof", "ctx_a": "A man sits.", "ctx_b": "he Is USING", "endings": ["[step] x", "b", "c", "d"], "label": "2"})"
      "\n");
  DataDirectory data(scratch.path());
  const auto documents = data.documents(task("hellaswag"));
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].text, "Roof: A man sits. He is using");
  EXPECT_EQ(documents[0].choices, (std::vector<std::string>{" x", "b", "c", "d"}));
  EXPECT_EQ(documents[0].gold, 2);
  EXPECT_EQ(continuation(task("hellaswag"), documents[0], 0), "  x");
}

TEST(Tasks, ArcInTheHubsForm) {
  Scratch scratch;
  scratch.write(
      "arc/arc_easy_test.jsonl",
      R"({"id": "a", "question": "Q?", "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "answerKey": "3"})"
      "\n");
  DataDirectory data(scratch.path());
  EXPECT_EQ(data.documents(task("arc_easy"))[0].gold, 2);
}

TEST(Tasks, WinograndeHasAContextForEachOption) {
  DataDirectory data("data");
  const TaskSpec& winogrande = task("winogrande");
  const auto documents = data.documents(winogrande);
  PromptBuilder prompts(winogrande, 0, {});
  EXPECT_EQ(prompts.next(documents[0]),
            (std::vector<std::string>{"Sarah was a much better surgeon than Maria so Sarah",
                                      "Sarah was a much better surgeon than Maria so Maria"}));
  EXPECT_EQ(continuation(winogrande, documents[0], 1), " always got the easier cases.");
  EXPECT_EQ(documents[0].gold, 1);
}

TEST(Tasks, MmluShotsAreTheFirstOfDev) {
  DataDirectory data("data");
  const TaskSpec& anatomy = task("mmlu_anatomy");
  const auto documents = data.documents(anatomy);
  const auto pool = data.shot_pool(anatomy);
  PromptBuilder prompts(anatomy, 2, pool);
  const std::string first = prompts.next(documents[0]).at(0);
  const std::string second = prompts.next(documents[1]).at(0);
  const std::string shared =
      cat("The following are multiple choice questions (with answers) about anatomy.\n\n", pool[0].text, " ",
          pool[0].target, "\n\n", pool[1].text, " ", pool[1].target, "\n\n");
  EXPECT_EQ(first, shared + documents[0].text);
  EXPECT_EQ(second, shared + documents[1].text);
  EXPECT_TRUE(documents[0].text.ends_with("\nAnswer:"));
}

TEST(Shots, ADocumentIsNeverItsOwnShot) {
  // Without a test split the pool may hold the document: k + 1 are drawn and it is dropped. Here every pool
  // document but one is the document itself, so the second draw is needed too.
  Example self{.text = "Q", .target = "A", .document = "self"};
  Example other{.text = "other", .target = "B", .document = "other"};
  TaskSpec spec = task("piqa");
  const std::vector<Example> pool = {self, self, self, other, self};
  PromptBuilder prompts(spec, 1, pool);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(prompts.next(self).at(0), "other B\n\nQ");
}

TEST(Shots, APoolTooSmallIsAnError) {
  const std::vector<Example> pool(5);
  EXPECT_EQ(error_of([&] { PromptBuilder(task("mmlu_anatomy"), 6, pool); }),
            "task mmlu_anatomy: 6 shots asked for, but the pool has 5 documents");
}

TEST(Selection, GroupsExpandOnce) {
  const auto selection =
      select_tasks(std::vector<std::string>{"mmlu_stem", "mmlu", "arc_easy", "mmlu_anatomy"});
  EXPECT_EQ(selection.tasks.size(), 58u);
  EXPECT_EQ(selection.groups.size(), 5u);
  EXPECT_EQ(selection.labels[0], "mmlu_stem");
  EXPECT_EQ(selection.labels[30], "mmlu");
}

TEST(Selection, AnUnknownNameOffersTheNearest) {
  const std::string message = error_of([] { select_tasks(std::vector<std::string>{"arc_esay"}); });
  EXPECT_NE(message.find("unknown task \"arc_esay\"; did you mean arc_easy?"), std::string::npos) << message;
  EXPECT_NE(message.find("wikitext"), std::string::npos) << message;
  EXPECT_EQ(error_of([] { select_tasks({}); }), "no task named");
}

TEST(Documents, TheFirstSoManyAreRead) {
  DataDirectory data("data");
  const auto all = data.documents(task("piqa"));
  const auto some = data.documents(task("piqa"), 7);
  ASSERT_EQ(some.size(), 7U);
  EXPECT_EQ(some[6].document, all[6].document);
  EXPECT_EQ(data.documents(task("piqa"), all.size() + 1).size(), all.size());

  // What is not asked for is not rendered: line 2 is no document of piqa.
  Scratch scratch;
  scratch.write("piqa/piqa_validation.jsonl", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 1})"
                                              "\n{}\n");
  DataDirectory bad(scratch.path());
  EXPECT_EQ(bad.documents(task("piqa"), 1).size(), 1U);
  EXPECT_NE(error_of([&] { bad.documents(task("piqa")); }), "no error");
}

TEST(Documents, ShotsComeFromThemWithoutAFileOfTheirOwn) {
  Scratch scratch;
  scratch.write("own.jsonl", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 1})"
                             "\n"
                             R"({"goal": "h", "sol1": "c", "sol2": "d", "label": 0})");
  TaskSpec own = task("piqa");
  own.files = {"own.jsonl"};
  own.shot_files.clear();
  DataDirectory data(scratch.path());
  data.require_files(own, /*shots=*/true);
  EXPECT_EQ(data.shot_count(own), 2U);
  const auto pool = data.shot_pool(own);
  ASSERT_EQ(pool.size(), 2U);
  EXPECT_EQ(pool[1].document, data.documents(own)[1].document);
}

TEST(Documents, MissingFilesAreFoundWithoutReading) {
  Scratch scratch;
  scratch.write("piqa/piqa_validation.jsonl", "not read");
  const DataDirectory data(scratch.path());
  data.require_files(task("piqa"), /*shots=*/false);
  EXPECT_NE(error_of([&] { data.require_files(task("piqa"), /*shots=*/true); }).find("piqa_train.jsonl"),
            std::string::npos);
  EXPECT_NE(error_of([&] { data.require_files(task("boolq"), /*shots=*/false); }).find("boolq"),
            std::string::npos);
}

TEST(BadData, NamesFileAndLine) {
  Scratch scratch;
  const auto message = [&](const std::string& text) {
    scratch.write("piqa/piqa_validation.jsonl", text);
    return error_of([&] { DataDirectory(scratch.path()).documents(task("piqa")); })
        .substr(scratch.path().size());
  };
  const std::string good = R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 1})"
                           "\n";
  EXPECT_EQ(message(good + R"({"goal": "g", "sol1": "a", "label": 0})"
                           "\n"),
            "/piqa/piqa_validation.jsonl:2: field \"sol2\" is missing");
  EXPECT_EQ(message(good + "\n" + R"({"goal": "g", "sol1": "a", "sol2": 7, "label": 0})"),
            "/piqa/piqa_validation.jsonl:3: field \"sol2\": expected a string, found 7");
  EXPECT_EQ(message(R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})"),
            "/piqa/piqa_validation.jsonl:1: the answer is number 2 of 2 choices (from 0)");
  EXPECT_TRUE(message(good + "{\"goal\": ").starts_with("/piqa/piqa_validation.jsonl:2: not valid JSON"));
  EXPECT_EQ(message("[1]\n"), "/piqa/piqa_validation.jsonl:1: expected an object, found array");
  EXPECT_EQ(message(good + "{\"goal\": \"\xff\"}\n"), "/piqa/piqa_validation.jsonl:2: not valid UTF-8");
}

TEST(BadData, EmptyAndMissingFiles) {
  Scratch scratch;
  scratch.write("boolq/boolq_validation.jsonl", "\n");
  DataDirectory data(scratch.path());
  EXPECT_NE(error_of([&] { data.documents(task("boolq")); }).find("has no documents"), std::string::npos);
  EXPECT_EQ(error_of([&] { data.documents(task("piqa")); }),
            cat("task piqa: no documents: expected ", scratch.path(), "/piqa/piqa_validation.jsonl[.xz]"));
  EXPECT_NE(error_of([&] { data.shot_pool(task("piqa")); }).find("piqa_train.jsonl"), std::string::npos);
  EXPECT_NE(error_of([] { DataDirectory("/nonexistent/dir"); }).find("does not exist"), std::string::npos);
}

TEST(BadData, DamagedXz) {
  Scratch scratch;
  std::string packed = read_file("data/boolq/boolq_validation.jsonl.xz", 1 << 20);
  DataDirectory data(scratch.path());
  scratch.write("boolq/boolq_validation.jsonl.xz", packed.substr(0, packed.size() / 2));
  EXPECT_NE(error_of([&] { data.documents(task("boolq")); }).find("not a whole xz file"), std::string::npos);
  scratch.write("boolq/boolq_validation.jsonl.xz", "no xz at all");
  EXPECT_NE(error_of([&] { data.documents(task("boolq")); }).find("not a whole xz file"), std::string::npos);
}

}  // namespace
}  // namespace asynct
