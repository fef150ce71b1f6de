#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace asynct {

/// --kv-memory SIZE (2G, 512M, bytes): the size of the KV cache; 0 is the default of plan_memory().
inline CLI::Option* add_kv_memory(CLI::App& command, std::int64_t& bytes) {
  return command
      .add_option("--kv-memory", bytes,
                  "size of the KV cache: 512M, 2G (default: as useful, at most 4G\nand half of what is left)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::NonNegativeNumber)
      ->type_name("SIZE");
}

}  // namespace asynct
