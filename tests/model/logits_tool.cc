// What the differential tests (tests/diff/test_logits.py) compare with PyTorch:
//   asynct_logits DIR fp32|bf16 logits < in > out      float32 logits [T, V] of all rows of each prompt
//   asynct_logits DIR fp32|bf16 greedy N < in > out    N greedy tokens after each prompt, past any end of
//   text
// Every record, in and out, is a 32-bit little-endian length and that many bytes; prompts and tokens are
// 32-bit ids.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "asynct/base/error.h"
#include "model_harness.h"

namespace asynct {
namespace {

constexpr int kThreads = 2;
constexpr std::int64_t kRows = 1024;  // a step

bool read_record(std::vector<Token>& tokens) {
  std::uint32_t size = 0;
  if (std::fread(&size, sizeof size, 1, stdin) != 1) return false;
  tokens.resize(size / sizeof(Token));
  if (size % sizeof(Token) != 0 || std::fread(tokens.data(), 1, size, stdin) != size)
    fail("stdin: a record of ", size, " bytes is cut, or holds no 32-bit ids");
  return true;
}

template <class T>
void write_record(const std::vector<T>& values) {
  const auto size = static_cast<std::uint32_t>(values.size() * sizeof(T));
  std::fwrite(&size, sizeof size, 1, stdout);
  std::fwrite(values.data(), 1, size, stdout);
}

void write_logits(const std::string& dir, Precision precision) {
  ModelHarness model(dir, {.threads = kThreads,
                           .isa = select_isa(),
                           .precision = precision,
                           .max_rows = kRows,
                           .kv_bytes = std::size_t{512} << 20});
  for (std::vector<Token> prompt; read_record(prompt);)
    write_record(model.logits_of(prompt, std::min<std::int64_t>(kRows, std::ssize(prompt))));
}

void write_greedy(const std::string& dir, Precision precision, std::int64_t count) {
  OpenedModel model =
      open_runner(dir, {.precision = precision, .threads = kThreads, .kv_bytes = std::int64_t{512} << 20});
  for (std::vector<Token> prompt; read_record(prompt);) write_record(greedy_tokens(model, prompt, count));
}

int run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool logits = arguments.size() == 3 && arguments[2] == "logits";
  const bool greedy = arguments.size() == 4 && arguments[2] == "greedy";
  if (!logits && !greedy) {
    std::fputs("usage: asynct_logits DIR fp32|bf16 logits|greedy [N] < records > records\n", stderr);
    return 2;
  }
  if (arguments[1] != "fp32" && arguments[1] != "bf16") fail(arguments[1], ": expected fp32 or bf16");
  const Precision precision = arguments[1] == "bf16" ? Precision::bf16 : Precision::fp32;
  if (logits) write_logits(arguments[0], precision);
  if (greedy) write_greedy(arguments[0], precision, std::strtoll(arguments[3].c_str(), nullptr, 10));
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace asynct

int main(int argc, char** argv) {
  try {
    return asynct::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "asynct_logits: %s\n", error.what());
    return 1;
  }
}
