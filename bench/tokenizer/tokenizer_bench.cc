// Encodes a file by one thread and reports the rate; bench.py runs it beside the Rust library.
//   asynct_tokenizer_bench DIR|FILE.json TEXT [repeats]
// The text is cut at blank lines into documents of 2,000 bytes or a little more. Prints one JSON object;
// rates are the best of the repeats, the first of which starts with cold caches.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/base/mapped_file.h"
#include "asynct/text/tokenizer.h"

namespace {

using asynct::Tokenizer;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kDocument = 2000;

std::vector<std::string_view> documents(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find("\n\n", std::min(kDocument, text.size())), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void run(const std::string& path, const std::string& text_path, int repeats) {
  const auto load_start = Clock::now();
  const Tokenizer tokenizer = std::filesystem::is_directory(path)
                                  ? Tokenizer::load(path)
                                  : Tokenizer::from_json(asynct::read_file(path, std::size_t{1} << 28), path);
  const double load = seconds_since(load_start);
  const std::string text = asynct::read_file(text_path, std::size_t{1} << 31);
  const auto parts = documents(text);
  double first = 0, best = 1e300, decode_best = 1e300;
  std::size_t tokens = 0, decoded = 0;
  std::uint64_t sum = 0;  // of ids times places, to compare with the other library's
  for (int i = 0; i < repeats; ++i) {
    std::vector<std::vector<asynct::Token>> ids(parts.size());
    const auto start = Clock::now();
    for (std::size_t d = 0; d < parts.size(); ++d) ids[d] = tokenizer.encode(parts[d]);
    const double seconds = seconds_since(start);
    if (i == 0) first = seconds;
    best = std::min(best, seconds);
    const auto decode_start = Clock::now();
    decoded = 0;
    for (const auto& document : ids) decoded += tokenizer.decode(document).size();
    decode_best = std::min(decode_best, seconds_since(decode_start));
    tokens = 0;
    sum = 0;
    for (const auto& document : ids) {
      for (std::size_t t = 0; t < document.size(); ++t)
        sum += static_cast<std::uint64_t>(document[t]) * (t + 1);
      tokens += document.size();
    }
  }
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::printf(
      "{\"documents\": %zu, \"tokens\": %zu, \"sum\": %llu, \"load_ms\": %.1f, \"encode_mb_s\": %.2f, "
      "\"first_mb_s\": %.2f, \"decode_mb_s\": %.2f}\n",
      parts.size(), tokens, static_cast<unsigned long long>(sum), load * 1e3, megabytes / best,
      megabytes / first, static_cast<double>(decoded) / 1e6 / decode_best);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: asynct_tokenizer_bench DIR|FILE.json TEXT [repeats]\n", stderr);
    return 2;
  }
  try {
    run(argv[1], argv[2], argc > 3 ? std::max(1, std::atoi(argv[3])) : 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "asynct_tokenizer_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
