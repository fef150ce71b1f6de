#include "asynct/text/component_json.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

using nlohmann::json;

/// The stages of a component: itself, or the flattened members of a Sequence (whose list is called `list`).
std::vector<const json*> flatten(const json& component, std::string_view list, const std::string& path) {
  if (component.is_null()) return {};
  if (text_member(component, "type", path) != "Sequence") return {&component};
  const json* const members = find_member(component, list, path);
  if (members == nullptr || !members->is_array()) fail(path, ".", list, ": expected an array");
  std::vector<const json*> out;
  for (const json& member : *members) {
    const auto inner = flatten(member, list, path);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

[[noreturn]] void unsupported(const std::string& path, const std::string& type) {
  fail(path, ": component \"", type, "\" is not supported");
}

/// {"String": ...} or {"Regex": ...}.
std::pair<bool, std::string> parse_pattern(const json& stage, const std::string& path) {
  const json* const pattern = find_member(stage, "pattern", path);
  if (pattern == nullptr || !pattern->is_object()) fail(path, ".pattern: expected an object");
  const bool is_regex = pattern->contains("Regex");
  std::string text = text_member(*pattern, is_regex ? "Regex" : "String", path + ".pattern");
  if (text.empty()) fail(path, ".pattern: empty");
  return {is_regex, std::move(text)};
}

ReplaceText parse_replace(const json& stage, const std::string& path) {
  auto [is_regex, text] = parse_pattern(stage, path);
  ReplaceText rule{.pattern = std::string(), .content = text_member(stage, "content", path)};
  if (is_regex)
    rule.pattern = Regex(text, path);
  else
    rule.pattern = std::move(text);
  return rule;
}

SplitStage parse_split(const json& stage, const std::string& path) {
  SplitStage out;
  auto [is_regex, text] = parse_pattern(stage, path);
  if (!is_regex)
    out.pattern = std::move(text);
  else if (const auto known = known_pattern(text))
    out.pattern = *known;
  else
    out.pattern = Regex(text, path);
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::isolated},
      {"Removed", SplitBehavior::removed},
      {"Contiguous", SplitBehavior::contiguous},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next}};
  const std::string behavior = text_member(stage, "behavior", path);
  const auto found = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                  [&](const auto& entry) { return entry.first == behavior; });
  if (found == std::end(kBehaviors)) fail(path, ".behavior: unknown value \"", behavior, "\"");
  out.behavior = found->second;
  out.invert = flag_member(stage, "invert", false, path);
  return out;
}

std::string one_character(const json& stage, std::string_view key, const std::string& path) {
  std::string text = text_member(stage, key, path);
  if (text.empty() || static_cast<std::size_t>(decode_utf8(text).length) != text.size())
    fail(path, ".", key, ": found \"", text, "\", expected one character");
  return text;
}

MetaspaceStage::Prepend parse_prepend_scheme(const json& stage, const std::string& path) {
  using Prepend = MetaspaceStage::Prepend;
  const std::string scheme =
      find_member(stage, "prepend_scheme", path) ? text_member(stage, "prepend_scheme", path) : "always";
  const json* const add_prefix = find_member(stage, "add_prefix_space", path);
  if (add_prefix != nullptr && !flag_member(stage, "add_prefix_space", true, path)) {
    if (scheme == "never" || !find_member(stage, "prepend_scheme", path)) return Prepend::never;
    fail(path, ": add_prefix_space false contradicts prepend_scheme \"", scheme, "\"");
  }
  if (scheme == "always") return Prepend::always;
  if (scheme == "first") return Prepend::first;
  if (scheme == "never") return Prepend::never;
  fail(path, ".prepend_scheme: unknown value \"", scheme, "\"");
}

MetaspaceStage parse_metaspace(const json& stage, const std::string& path) {
  return {.replacement = one_character(stage, "replacement", path),
          .prepend = parse_prepend_scheme(stage, path),
          .split = flag_member(stage, "split", true, path)};
}

Token special_id(const json& value, const std::string& path) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT32_MAX)
    fail(path, ": expected a token id");
  return value.get<Token>();
}

/// TemplateProcessing's "single": special tokens before and after the sequence A.
PostProcessor parse_template(const json& stage, const std::string& path) {
  const json* const pieces = find_member(stage, "single", path);
  if (pieces == nullptr || !pieces->is_array()) fail(path, ".single: expected an array");
  const json* const specials = find_member(stage, "special_tokens", path);
  PostProcessor out;
  bool after = false;
  for (const json& piece : *pieces) {
    if (find_member(piece, "Sequence", path) != nullptr) {
      if (std::exchange(after, true)) fail(path, ".single: more than one sequence");
      continue;
    }
    const json* const special = find_member(piece, "SpecialToken", path);
    if (special == nullptr) fail(path, ".single: expected Sequence or SpecialToken");
    const std::string name = text_member(*special, "id", path + ".single");
    const json* const entry =
        specials == nullptr ? nullptr : find_member(*specials, name, path + ".special_tokens");
    const json* const ids = entry == nullptr ? nullptr : find_member(*entry, "ids", path + ".special_tokens");
    if (ids == nullptr || !ids->is_array()) fail(path, ".special_tokens: no ids of \"", name, "\"");
    for (const json& id : *ids) (after ? out.suffix : out.prefix).push_back(special_id(id, path));
  }
  if (!after) fail(path, ".single: no sequence");
  return out;
}

/// BertProcessing and RobertaProcessing: cls, the text, sep.
PostProcessor parse_cls_sep(const json& stage, const std::string& path) {
  const auto id = [&](std::string_view key) {
    const json* const pair = find_member(stage, key, path);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2)
      fail(path, ".", key, ": expected [token, id]");
    return special_id((*pair)[1], path);
  };
  return {{id("cls")}, {id("sep")}};
}

void add_decoder_stage(DecoderSpec& decoder, const json& stage, const std::string& path) {
  const std::string type = text_member(stage, "type", path);
  const bool other = decoder.byte_level || decoder.metaspace || decoder.byte_fallback || decoder.fuse;
  const auto require = [&](bool ordered) {
    if (!ordered) fail(path, ": component \"", type, "\" at this place of a Sequence is not supported");
  };
  if (type == "ByteLevel") {
    require(!other && decoder.replacements.empty());
    decoder.byte_level = true;
  } else if (type == "Metaspace") {
    require(!other && decoder.replacements.empty());
    const MetaspaceStage metaspace = parse_metaspace(stage, path);
    decoder.metaspace = metaspace.replacement;
    decoder.metaspace_drops_first = metaspace.prepend != MetaspaceStage::Prepend::never;
  } else if (type == "Replace") {
    require(!other);
    decoder.replacements.push_back(parse_replace(stage, path));
  } else if (type == "ByteFallback") {
    require(!other);
    decoder.byte_fallback = true;
  } else if (type == "Fuse") {
    require(!decoder.byte_level && !decoder.metaspace);
    decoder.fuse = true;
  } else if (type == "Strip") {
    require(decoder.fuse && decoder.strip.content.empty());
    decoder.strip.content = one_character(stage, "content", path);
    decoder.strip.start = token_member(stage, "start", path);
    if (token_member(stage, "stop", path) != 0) fail(path, ": Strip with stop above 0 is not supported");
  } else {
    unsupported(path, type);
  }
}

}  // namespace

const json* find_member(const json& object, std::string_view key, const std::string& path) {
  if (!object.is_object()) fail(path, ": expected an object, found ", object.type_name());
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_member(const json& object, std::string_view key, const std::string& path) {
  const json* const value = find_member(object, key, path);
  if (value == nullptr) fail(path, ".", key, ": missing");
  if (!value->is_string()) fail(path, ".", key, ": expected a string, found ", value->type_name());
  return value->get<std::string>();
}

bool flag_member(const json& object, std::string_view key, bool fallback, const std::string& path) {
  const json* const value = find_member(object, key, path);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(path, ".", key, ": expected true or false, found ", value->type_name());
  return value->get<bool>();
}

Token token_member(const json& object, std::string_view key, const std::string& path) {
  const json* const value = find_member(object, key, path);
  if (value == nullptr) fail(path, ".", key, ": missing");
  return special_id(*value, path + "." + std::string(key));
}

std::vector<NormalizerStage> parse_normalizer(const json& component, const std::string& path) {
  using Form = UnicodeForm::Form;
  std::vector<NormalizerStage> out;
  for (const json* stage : flatten(component, "normalizers", path)) {
    const std::string type = text_member(*stage, "type", path);
    if (type == "NFC")
      out.emplace_back(UnicodeForm{Form::nfc});
    else if (type == "NFD")
      out.emplace_back(UnicodeForm{Form::nfd});
    else if (type == "NFKC")
      out.emplace_back(UnicodeForm{Form::nfkc});
    else if (type == "NFKD")
      out.emplace_back(UnicodeForm{Form::nfkd});
    else if (type == "Prepend")
      out.emplace_back(PrependText{text_member(*stage, "prepend", path)});
    else if (type == "Replace")
      out.emplace_back(parse_replace(*stage, path));
    else
      unsupported(path, type);
  }
  return out;
}

std::vector<PreTokenizerStage> parse_pre_tokenizer(const json& component, const std::string& path) {
  std::vector<PreTokenizerStage> out;
  for (const json* stage : flatten(component, "pretokenizers", path)) {
    const std::string type = text_member(*stage, "type", path);
    if (!out.empty() && std::holds_alternative<ByteLevelStage>(out.back()))
      fail(path, ": ByteLevel before \"", type, "\" is not supported, it must come last");
    if (type == "ByteLevel")
      out.emplace_back(ByteLevelStage{.add_prefix_space = flag_member(*stage, "add_prefix_space", true, path),
                                      .use_regex = flag_member(*stage, "use_regex", true, path)});
    else if (type == "Split")
      out.emplace_back(parse_split(*stage, path));
    else if (type == "Digits")
      out.emplace_back(DigitsStage{flag_member(*stage, "individual_digits", false, path)});
    else if (type == "Metaspace")
      out.emplace_back(parse_metaspace(*stage, path));
    else
      unsupported(path, type);
  }
  return out;
}

DecoderSpec parse_decoder(const json& component, const std::string& path) {
  DecoderSpec decoder;
  for (const json* stage : flatten(component, "decoders", path)) {
    add_decoder_stage(decoder, *stage, path);
    decoder.present = true;
  }
  return decoder;
}

PostProcessor parse_post_processor(const json& component, const std::string& path) {
  PostProcessor out;
  for (const json* stage : flatten(component, "processors", path)) {
    const std::string type = text_member(*stage, "type", path);
    if (type == "ByteLevel") continue;  // moves offsets only
    PostProcessor next;
    if (type == "TemplateProcessing")
      next = parse_template(*stage, path);
    else if (type == "BertProcessing" || type == "RobertaProcessing")
      next = parse_cls_sep(*stage, path);
    else
      unsupported(path, type);
    out.prefix.insert(out.prefix.begin(), next.prefix.begin(), next.prefix.end());
    out.suffix.insert(out.suffix.end(), next.suffix.begin(), next.suffix.end());
  }
  return out;
}

}  // namespace asynct
