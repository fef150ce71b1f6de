#pragma once

#include <optional>
#include <string>
#include <vector>

#include "asynct/text/added_tokens.h"
#include "asynct/text/bpe.h"
#include "asynct/text/decoder.h"
#include "asynct/text/normalizer.h"
#include "asynct/text/pretokenizer.h"
#include "asynct/text/string_table.h"

namespace asynct {

/// What a Tokenizer is made of. Built once by load_tokenizer_parts().
struct TokenizerParts {
  Normalizer normalizer;
  AddedTokenMatcher raw_tokens;         // looked for in the text as it comes
  AddedTokenMatcher normalized_tokens;  // and in the normalized text
  PreTokenizer pre_tokenizer;
  BpeModel bpe;
  std::vector<Token> prefix, suffix;  // of the post-processor
  DecoderSpec decoder;

  TokenStrings contents;            // by id, as in the file; of added tokens the form they decode from
  TokenStrings bytes;               // by id, what the token adds to a text (decode_token, not first)
  std::vector<bool> known;          // by id: there is such a token
  std::vector<bool> special;        // by id
  std::vector<bool> fallback_byte;  // by id: the token <0xNN>, where the decoder reads it as a byte
  StringTable ids;                  // content -> id, added tokens too
  std::optional<Token> bos, eos, pad;
};

/// `config_json`: text of tokenizer_config.json, empty for none. The names open error messages.
TokenizerParts load_tokenizer_parts(std::string_view tokenizer_json, std::string_view tokenizer_name,
                                    std::string_view config_json, std::string_view config_name);

}  // namespace asynct
