// Applies the evaluator's text functions to lines of JSON {"function": ..., "text": ...} from standard input,
// for the comparison with Python in tests/diff.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/eval/filters.h"
#include "asynct/eval/sha256.h"
#include "asynct/eval/tasks.h"
#include "asynct/text/python_string.h"
#include "asynct/text/python_values.h"

namespace asynct {
namespace {

using Function = std::string (*)(std::string_view);

const std::map<std::string, Function> kFunctions = {
    {"hash_answer", filter_hash_answer},
    {"the_answer_is", filter_the_answer_is},
    {"last_number", filter_last_number},
    {"normalize_answer", normalize_answer},
    {"hellaswag_clean", hellaswag_clean},
    {"wikitext_detokenize", wikitext_detokenize},
    {"capitalize", python::capitalize},
    {"strip", [](std::string_view text) { return std::string(python::strip(text)); }},
    {"length", [](std::string_view text) { return cat(python::length(text)); }},
    {"split_count", [](std::string_view text) { return cat(python::split_count(text)); }},
    {"repr",
     [](std::string_view text) { return python::repr(std::strtod(std::string(text).c_str(), nullptr)); }},
    {"sha256", sha256_hex},
};

}  // namespace
}  // namespace asynct

int main() {
  try {
    std::string line;
    while (std::getline(std::cin, line)) {
      const asynct::Json request = asynct::parse_json(line, "request");
      const std::string text = request.at("text").get<std::string>();
      const asynct::Json result = asynct::kFunctions.at(request.at("function").get<std::string>())(text);
      std::puts(asynct::dump_json(result).c_str());
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
