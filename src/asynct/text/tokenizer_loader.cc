#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/base/log.h"
#include "asynct/text/component_json.h"
#include "asynct/text/tokenizer_json.h"
#include "asynct/text/tokenizer_parts.h"

namespace asynct {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxTokenId = (1 << 22) - 1;
constexpr std::size_t kMaxContent = 4096;  // bytes of an added token

struct Entry {
  std::string content;
  Token id;
};

Token checked_id(std::int64_t id, const std::string& content, const std::string& path) {
  if (id < 0 || id > kMaxTokenId)
    fail(path, ": token \"", content, "\" has id ", id, ", expected 0 to ", kMaxTokenId);
  return static_cast<Token>(id);
}

/// model.vocab and added_tokens with every id checked.
class Vocabulary {
 public:
  Vocabulary(TokenizerJson& source, const std::string& name)
      : ids_(source.vocabulary.size() + added_count(source.document, name)) {
    for (auto& [content, id] : source.vocabulary) {
      const std::string path = name + ": model.vocab";
      add(content, checked_id(id, content, path), path);
    }
    model_entries_ = entries_.size();
    source.vocabulary.clear();
    const json* const list = find_member(source.document, "added_tokens", name);
    if (list == nullptr) return;
    for (std::size_t i = 0; i < list->size(); ++i)
      add_added((*list)[i], name + ": added_tokens[" + std::to_string(i) + "]");
  }

  std::span<const Entry> model_entries() const { return std::span(entries_).first(model_entries_); }
  std::span<const Entry> entries() const { return entries_; }
  std::vector<AddedToken>& added() { return added_; }
  StringTable& ids() { return ids_; }
  std::size_t id_count() const { return owner_.size(); }

 private:
  static std::size_t added_count(const json& document, const std::string& name) {
    const json* const list = find_member(document, "added_tokens", name);
    if (list == nullptr) return 0;
    if (!list->is_array()) fail(name, ": added_tokens: expected an array, found ", list->type_name());
    return list->size();
  }

  void add(const std::string& content, Token id, const std::string& path) {
    if (!ids_.insert(content, id)) fail(path, ": token \"", content, "\" appears twice");
    const auto i = static_cast<std::size_t>(id);
    if (i >= owner_.size()) owner_.resize(i + 1, -1);
    if (owner_[i] >= 0)
      fail(path, ": id ", id, " belongs to \"", entries_[static_cast<std::size_t>(owner_[i])].content,
           "\" and to \"", content, "\"");
    owner_[i] = static_cast<std::int32_t>(entries_.size());
    entries_.push_back({content, id});
  }

  void add_added(const json& value, const std::string& path) {
    AddedToken token;
    token.content = text_member(value, "content", path);
    if (token.content.empty()) return;  // can never be found
    if (token.content.size() > kMaxContent)
      fail(path, ".content: ", token.content.size(), " bytes, more than the limit of ", kMaxContent);
    token.id = checked_id(token_member(value, "id", path), token.content, path);
    token.single_word = flag_member(value, "single_word", false, path);
    token.lstrip = flag_member(value, "lstrip", false, path);
    token.rstrip = flag_member(value, "rstrip", false, path);
    token.special = flag_member(value, "special", false, path);
    token.normalized = flag_member(value, "normalized", !token.special, path);
    const auto earlier = ids_.find(token.content);
    if (!earlier)
      add(token.content, token.id, path);
    else if (*earlier != token.id)
      fail(path, ": token \"", token.content, "\" has id ", token.id, ", but elsewhere ", *earlier);
    added_.push_back(std::move(token));
  }

  StringTable ids_;
  std::vector<Entry> entries_;
  std::size_t model_entries_ = 0;
  std::vector<std::int32_t> owner_;  // by id: place in entries_, -1 for none
  std::vector<AddedToken> added_;
};

MergeTable parse_merges(TokenizerJson& source, const StringTable& ids, const std::string& name) {
  MergeTable table(source.merges.size());
  for (std::size_t rank = 0; rank < source.merges.size(); ++rank) {
    const std::string& left = source.merges[rank].first;
    const std::string& right = source.merges[rank].second;
    const auto id = [&](const std::string& content) {
      const auto found = ids.find(content);
      if (!found)
        fail(name, ": model.merges[", rank, "]: \"", left, "\" + \"", right, "\": \"", content,
             "\" is not in model.vocab");
      return *found;
    };
    const Merge merge{static_cast<std::uint32_t>(rank), id(left + right)};
    table.insert(id(left), id(right), merge);
  }
  source.merges.clear();
  return table;
}

void refuse_options(const json& model, const std::string& path) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (find_member(model, key, path) != nullptr && !text_member(model, key, path).empty())
      fail(path, ".", key, ": \"", text_member(model, key, path),
           "\" is not supported, only an empty one is");
  const json* const dropout = find_member(model, "dropout", path);
  if (dropout == nullptr) return;
  if (!dropout->is_number() || dropout->get<double>() != 0)
    fail(path, ".dropout: only null and 0 are supported (ids would be random)");
}

/// The words that BPE sees: contents, mapped back to bytes under a ByteLevel pre-tokenizer. A content that is
/// not of ByteLevel's characters can never be met there.
StringTable model_words(std::span<const Entry> entries, bool byte_level, const std::string& name) {
  StringTable words(entries.size());
  for (const Entry& entry : entries) {
    const auto bytes = byte_level ? bytes_of_content(entry.content) : entry.content;
    if (bytes && !words.insert(*bytes, entry.id))
      fail(name, ": model.vocab: \"", entry.content, "\" appears twice");
  }
  return words;
}

/// The tokens <0x00> to <0xFF>, -1 for those that are missing.
std::vector<Token> byte_tokens(const StringTable& ids) {
  std::vector<Token> tokens(256, -1);
  for (int byte = 0; byte < 256; ++byte) {
    char content[8];
    std::snprintf(content, sizeof content, "<0x%02X>", byte);
    tokens[static_cast<std::size_t>(byte)] = ids.find(content).value_or(-1);
  }
  return tokens;
}

bool has_all_bytes(const StringTable& words) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (!words.find({&text, 1})) return false;
  }
  return true;
}

BpeModel build_model(TokenizerJson& source, Vocabulary& vocabulary, bool byte_level,
                     const std::string& name) {
  const std::string path = name + ": model";
  const json& model = *find_member(source.document, "model", name);
  refuse_options(model, path);
  StringTable words = model_words(vocabulary.model_entries(), byte_level, name);
  BpeOptions options{.byte_level = byte_level,
                     .byte_fallback = flag_member(model, "byte_fallback", false, path),
                     .fuse_unknown = flag_member(model, "fuse_unk", false, path),
                     .ignore_merges = flag_member(model, "ignore_merges", false, path),
                     .unknown = std::nullopt};
  const bool complete = byte_level && has_all_bytes(words);
  if (byte_level && options.byte_fallback && !complete)
    fail(path, ": byte_fallback with ByteLevel is supported only when all 256 byte tokens are in vocab");
  if (find_member(model, "unk_token", path) != nullptr && !complete) {
    const std::string unknown = text_member(model, "unk_token", path);
    options.unknown = vocabulary.ids().find(unknown);
    if (!options.unknown) fail(path, ".unk_token: \"", unknown, "\" is not in vocab");
  }
  MergeTable merges = parse_merges(source, vocabulary.ids(), name);
  return BpeModel(options, std::move(words), std::move(merges), byte_tokens(vocabulary.ids()));
}

void require_bpe(const TokenizerJson& source, const std::string& name) {
  const json* const model = find_member(source.document, "model", name);
  if (model == nullptr) fail(name, ": model: missing");
  const bool typed = find_member(*model, "type", name + ": model") != nullptr;
  const std::string type = typed ? text_member(*model, "type", name + ": model") : "BPE";
  if (type != "BPE") fail(name, ": model.type: \"", type, "\" is not supported, only \"BPE\" is");
  if (!source.has_vocabulary) fail(name, ": model.vocab: missing, or not an object");
  if (!source.has_merges) fail(name, ": model.merges: missing, or not an array");
  if (find_member(source.document, "version", name) && text_member(source.document, "version", name) != "1.0")
    fail(name, ": version: expected \"1.0\"");
}

/// Added tokens are looked for before or after normalization. Fills the patterns.
void build_matchers(TokenizerParts& parts, std::vector<AddedToken> tokens, const std::string& name) {
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : tokens) {
    std::string buffer;
    token.pattern =
        token.normalized ? std::string(parts.normalizer.apply(token.content, buffer)) : token.content;
    if (token.pattern.empty())
      fail(name, ": added token \"", token.content, "\": nothing is left after normalization");
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  std::map<std::string, std::string> patterns;
  for (const AddedToken& token : normalized) {
    const auto [other, fresh] = patterns.emplace(token.pattern, token.content);
    if (!fresh)
      fail(name, ": added tokens \"", other->second, "\" and \"", token.content,
           "\" have one normalized form");
  }
  parts.raw_tokens = AddedTokenMatcher(std::move(raw));
  parts.normalized_tokens = AddedTokenMatcher(std::move(normalized));
}

void index_tokens(TokenizerParts& parts, Vocabulary& vocabulary) {
  const std::size_t ids = vocabulary.id_count();
  parts.contents = TokenStrings(ids);
  parts.bytes = TokenStrings(ids);
  parts.known.assign(ids, false);
  parts.special.assign(ids, false);
  parts.fallback_byte.assign(ids, false);
  std::vector<const AddedToken*> added(ids, nullptr);
  for (const AddedToken& token : vocabulary.added()) added[static_cast<std::size_t>(token.id)] = &token;
  for (const Entry& entry : vocabulary.entries()) {
    const auto i = static_cast<std::size_t>(entry.id);
    std::string buffer;
    // An added token that was looked for in normalized text decodes from its normalized form.
    const std::string_view content = added[i] != nullptr && added[i]->normalized
                                         ? parts.normalizer.apply(entry.content, buffer)
                                         : std::string_view(entry.content);
    const std::string bytes = decode_token(parts.decoder, content, false);
    parts.contents.set(entry.id, content);
    parts.bytes.set(entry.id, bytes);
    parts.known[i] = true;
    parts.special[i] = added[i] != nullptr && added[i]->special;
    parts.fallback_byte[i] = parts.decoder.byte_fallback && byte_of_fallback_token(content) >= 0;
  }
}

void check_ids(const std::vector<Token>& ids, const std::vector<bool>& known, const std::string& path) {
  for (const Token id : ids)
    if (static_cast<std::size_t>(id) >= known.size() || !known[static_cast<std::size_t>(id)])
      fail(path, ": id ", id, " is no token");
}

/// bos_token and its kin: a string, or an object with the string in "content". Some files name a token that
/// the tokenizer lacks; that is worth a warning, not the run.
std::optional<Token> special_token(const json& config, const char* key, const StringTable& ids,
                                   const std::string& name) {
  const json* const value = find_member(config, key, name);
  if (value == nullptr) return std::nullopt;
  const std::string content = value->is_object() ? text_member(*value, "content", name + ": " + key)
                                                 : text_member(config, key, name + ": ");
  const auto id = ids.find(content);
  if (!id) log(LogLevel::warning, cat(name, ": ", key, " \"", content, "\" is not a token of the tokenizer"));
  return id;
}

/// tokenizer_config.json. With add_bos_token or add_eos_token it overrides the post-processor, as
/// transformers does.
void apply_config(TokenizerParts& parts, std::string_view text, const std::string& name) {
  json config;
  try {
    config = json::parse(text.begin(), text.end(), [&](int depth, json::parse_event_t, json&) {
      if (depth > 64) fail(name, ": JSON is nested deeper than 64 levels");
      return true;
    });
  } catch (const json::exception& error) {
    fail(name, ": not valid JSON: ", error.what());
  }
  parts.bos = special_token(config, "bos_token", parts.ids, name);
  parts.eos = special_token(config, "eos_token", parts.ids, name);
  parts.pad = special_token(config, "pad_token", parts.ids, name);
  if (!find_member(config, "add_bos_token", name) && !find_member(config, "add_eos_token", name)) return;
  parts.prefix.clear();
  parts.suffix.clear();
  if (flag_member(config, "add_bos_token", false, name) && parts.bos) parts.prefix = {*parts.bos};
  if (flag_member(config, "add_eos_token", false, name) && parts.eos) parts.suffix = {*parts.eos};
}

}  // namespace

TokenizerParts load_tokenizer_parts(std::string_view tokenizer_json, std::string_view tokenizer_name,
                                    std::string_view config_json, std::string_view config_name) {
  const std::string name(tokenizer_name);
  TokenizerJson source = parse_tokenizer_json(tokenizer_json, name);
  if (!source.document.is_object()) fail(name, ": expected an object");
  require_bpe(source, name);
  const auto component = [&](const char* key) -> const json& {
    static const json kNull;
    const json* const found = find_member(source.document, key, name);
    return found == nullptr ? kNull : *found;
  };
  Vocabulary vocabulary(source, name);
  PreTokenizer pre_tokenizer(parse_pre_tokenizer(component("pre_tokenizer"), name + ": pre_tokenizer"));
  BpeModel model = build_model(source, vocabulary, pre_tokenizer.byte_level(), name);
  PostProcessor post = parse_post_processor(component("post_processor"), name + ": post_processor");
  TokenizerParts parts{
      .normalizer = Normalizer(parse_normalizer(component("normalizer"), name + ": normalizer")),
      .raw_tokens = {},
      .normalized_tokens = {},
      .pre_tokenizer = std::move(pre_tokenizer),
      .bpe = std::move(model),
      .prefix = std::move(post.prefix),
      .suffix = std::move(post.suffix),
      .decoder = parse_decoder(component("decoder"), name + ": decoder"),
      .contents = {},
      .bytes = {},
      .known = {},
      .special = {},
      .fallback_byte = {},
      .ids = StringTable(0),
      .bos = {},
      .eos = {},
      .pad = {}};
  index_tokens(parts, vocabulary);
  check_ids(parts.prefix, parts.known, name + ": post_processor");
  check_ids(parts.suffix, parts.known, name + ": post_processor");
  build_matchers(parts, std::move(vocabulary.added()), name);
  parts.ids = std::move(vocabulary.ids());
  if (!config_json.empty()) apply_config(parts, config_json, std::string(config_name));
  return parts;
}

}  // namespace asynct
