// Headers of safetensors files. The first byte chooses: even, the rest is the file; odd, the rest is a header
// to which a matching length and some data are added (a fuzzer rarely guesses the length).
#include <cstring>
#include <string>

#include "asynct/base/error.h"
#include "asynct/model/safetensors.h"

namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void parse(const std::string& file) {
  std::vector<asynct::SafetensorsEntry> entries;
  try {
    entries = asynct::parse_safetensors(std::as_bytes(std::span(file)), "fuzz");
  } catch (const asynct::Error&) {
    return;
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  std::size_t end = 8 + length;
  for (const auto& entry : entries) {  // what was accepted covers the data exactly
    check(entry.begin == end && entry.end >= entry.begin && entry.end <= file.size());
    end = entry.end;
  }
  check(end == file.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    parse(rest);
    return 0;
  }
  const std::uint64_t length = rest.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  parse(file + rest + std::string(data[0] / 2, '\0'));
  return 0;
}
