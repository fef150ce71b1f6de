#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace asynct {

/// A tokenizer.json taken apart: the two big tables as flat lists, everything else as a small document.
struct TokenizerJson {
  std::vector<std::pair<std::string, std::int64_t>> vocabulary;  // model.vocab, in the file's order
  std::vector<std::pair<std::string, std::string>> merges;       // model.merges, either written form
  bool has_vocabulary = false;                                   // model.vocab was there, and an object
  bool has_merges = false;                                       // model.merges was there, and an array
  nlohmann::json document;                                       // the rest; no vocab and merges in model
};

/// Errors: not JSON, ill-formed UTF-8, nested deeper than 64 levels, a key twice in one object, entries of
/// vocab that are no integers, entries of merges that are neither "a b" nor ["a", "b"].
TokenizerJson parse_tokenizer_json(std::string_view text, std::string_view what);

}  // namespace asynct
