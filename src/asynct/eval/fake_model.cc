#include "asynct/eval/fake_model.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "asynct/base/json.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

/// The printable character that byte-level BPE writes for a byte.
std::string byte_symbol(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  char32_t c = static_cast<char32_t>(byte);
  if (!printable(byte)) {
    c = 256;
    for (int b = 0; b < byte; ++b) c += printable(b) ? 0 : 1;
  }
  std::string out;
  append_utf8(out, c);
  return out;
}

}  // namespace

Tokenizer byte_tokenizer(bool adds_bos) {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_symbol(byte)] = byte;
  const std::string eos = "<|endoftext|>";
  Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array({{{"id", 256},
                                     {"content", eos},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", true}}})},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", Json::array()}}}};
  if (adds_bos)
    file["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", Json::array({{{"SpecialToken", {{"id", eos}, {"type_id", 0}}}},
                                                      {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
                              {"pair", Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                                                    {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}})},
                              {"special_tokens", {{eos, {{"id", eos}, {"ids", {256}}, {"tokens", {eos}}}}}}};
  const auto directory = std::filesystem::temp_directory_path() / cat("asynct_byte_tokenizer_", ::getpid());
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "tokenizer.json") << dump_json(file);
  std::ofstream(directory / "tokenizer_config.json") << dump_json({{"bos_token", eos}, {"eos_token", eos}});
  Tokenizer tokenizer = Tokenizer::load(directory.string());
  std::filesystem::remove_all(directory);
  return tokenizer;
}

}  // namespace asynct
