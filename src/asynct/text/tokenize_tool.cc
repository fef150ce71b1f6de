// A filter for the differential tests and for looking at a tokenizer by hand:
//   asynct_tokenize DIR|FILE.json encode|encode-special|encode-plain|decode|decode-skip|stream < in > out
// Every record, in and out, is a 32-bit little-endian length and that many bytes; ids are 32-bit integers.
// encode takes text and gives ids, decode takes ids and gives text, stream decodes through StreamDecoder.

#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"
#include "asynct/text/record_io.h"
#include "asynct/text/tokenizer.h"

namespace {

using asynct::Token;
using asynct::Tokenizer;

std::vector<Token> as_tokens(const std::string& record) {
  std::vector<Token> tokens(record.size() / sizeof(Token));
  std::memcpy(tokens.data(), record.data(), tokens.size() * sizeof(Token));
  return tokens;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  asynct::StreamDecoder decoder(tokenizer);
  std::string text;
  for (const Token token : tokens) text += decoder.push(token);
  return text += decoder.finish();
}

void run(const std::string& path, const std::string& mode) {
  const Tokenizer tokenizer = std::filesystem::is_directory(path)
                                  ? Tokenizer::load(path)
                                  : Tokenizer::from_json(asynct::read_file(path, std::size_t{1} << 28), path);
  std::string record;
  while (asynct::read_record(record)) {
    if (mode == "decode" || mode == "decode-skip" || mode == "stream") {
      const auto tokens = as_tokens(record);
      const std::string text =
          mode == "stream" ? stream(tokenizer, tokens) : tokenizer.decode(tokens, mode == "decode-skip");
      asynct::write_record(text);
    } else if (mode.starts_with("encode")) {
      const auto tokens = tokenizer.encode(
          record, {.add_special_tokens = mode == "encode-special", .parse_special = mode != "encode-plain"});
      asynct::write_record({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)});
    } else {
      asynct::fail("mode \"", mode,
                   "\": expected encode, encode-special, encode-plain, decode, decode-skip or stream");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: asynct_tokenize DIR|FILE.json MODE < records > records\n", stderr);
    return 2;
  }
  try {
    run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "asynct_tokenize: %s\n", error.what());
    return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
