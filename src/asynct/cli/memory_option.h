#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace asynct {

/// AsSizeValue takes "-5" for 2^64 - 5.
inline std::string starts_with_digit(std::string& text) {
  if (!text.empty() && text[0] >= '0' && text[0] <= '9') return {};
  return "expected a size such as 512M, 2G or 0, found \"" + text + "\"";
}

/// --kv-memory SIZE (2G, 512M, bytes): the size of the KV cache; 0 is the default of plan_memory().
inline CLI::Option* add_kv_memory(CLI::App& command, std::int64_t& bytes) {
  return command
      .add_option("--kv-memory", bytes,
                  "size of the KV cache: 512M, 2G (default: as useful, at most 4G\nand half of what is left)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->transform(CLI::Validator(starts_with_digit, ""))  // the last transform is the first to see the value
      ->type_name("SIZE");
}

}  // namespace asynct
