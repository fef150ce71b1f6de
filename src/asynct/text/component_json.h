#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/text/decoder.h"
#include "asynct/text/normalizer.h"
#include "asynct/text/pretokenizer.h"
#include "asynct/text/token.h"

namespace asynct {

// Readers of tokenizer.json's components. `path` names the component in error messages ("tokenizer.json:
// pre_tokenizer"). A component that is absent or null has no stages; one that is unknown is an Error with its
// name, since leaving it out would give other ids.

std::vector<NormalizerStage> parse_normalizer(const nlohmann::json& component, const std::string& path);
std::vector<PreTokenizerStage> parse_pre_tokenizer(const nlohmann::json& component, const std::string& path);
DecoderSpec parse_decoder(const nlohmann::json& component, const std::string& path);

struct PostProcessor {
  std::vector<Token> prefix, suffix;
};
PostProcessor parse_post_processor(const nlohmann::json& component, const std::string& path);

// Members of an object with the type they must have; Errors name path and key.
const nlohmann::json* find_member(const nlohmann::json& object, std::string_view key,
                                  const std::string& path);
std::string text_member(const nlohmann::json& object, std::string_view key, const std::string& path);
bool flag_member(const nlohmann::json& object, std::string_view key, bool fallback, const std::string& path);
Token token_member(const nlohmann::json& object, std::string_view key, const std::string& path);

}  // namespace asynct
