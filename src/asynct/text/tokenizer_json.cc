#include "asynct/text/tokenizer_json.h"

#include "asynct/base/error.h"

namespace asynct {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxEntries = std::size_t{1} << 24;  // of vocab, and of merges

/// Receives the parser's events. A vocabulary has 10^5 entries, so it never becomes a tree.
class TokenizerSax : public nlohmann::json_sax<json> {
 public:
  TokenizerSax(TokenizerJson& out, std::string_view what) : out_(out), what_(what) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(std::int64_t v) override { return in_vocabulary_ ? token_id(v) : value(v); }
  bool number_unsigned(std::uint64_t v) override {
    if (!in_vocabulary_) return value(v);
    return token_id(v > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(v));
  }
  bool number_float(double v, const std::string&) override { return value(v); }
  bool string(std::string& v) override { return in_merges_ ? merge_text(v) : value(std::move(v)); }
  bool binary(binary_t&) override { return value(nullptr); }

  bool start_object(std::size_t) override {
    if (at_model("vocab")) {
      if (out_.has_vocabulary) fail(what_, ": model.vocab appears twice");
      in_vocabulary_ = out_.has_vocabulary = true;
      return true;
    }
    return open(json::object());
  }
  bool key(std::string& v) override {
    if (in_vocabulary_) {
      vocabulary_key_ = std::move(v);
      return true;
    }
    if (open_.back()->contains(v)) fail(what_, ": the key \"", v, "\" appears twice in one object");
    keys_.back() = std::move(v);
    return true;
  }
  bool end_object() override {
    if (in_vocabulary_) {
      in_vocabulary_ = false;
      return true;
    }
    return close();
  }

  bool start_array(std::size_t) override {
    if (in_merges_) {
      if (in_pair_) bad_merge("an array in an array");
      in_pair_ = true;
      pair_.clear();
      return true;
    }
    if (at_model("merges")) {
      if (out_.has_merges) fail(what_, ": model.merges appears twice");
      in_merges_ = out_.has_merges = true;
      return true;
    }
    return open(json::array());
  }
  bool end_array() override {
    if (in_pair_) {
      in_pair_ = false;
      if (pair_.size() != 2) bad_merge("an array of " + std::to_string(pair_.size()));
      return add_merge(std::move(pair_[0]), std::move(pair_[1]));
    }
    if (in_merges_) {
      in_merges_ = false;
      return true;
    }
    return close();
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail(what_, ": not valid JSON: ", std::string_view(error.what()));
  }

 private:
  /// Whether the value that begins here is `name` of the top-level object "model".
  bool at_model(std::string_view name) const {
    if (in_vocabulary_) fail(what_, ": model.vocab[\"", vocabulary_key_, "\"]: expected a token id");
    return open_.size() == 2 && keys_[0] == "model" && keys_[1] == name && open_[1]->is_object();
  }

  template <class Value>
  bool value(Value&& v) {
    if (in_merges_) bad_merge("something that is no string");
    if (in_vocabulary_) fail(what_, ": model.vocab[\"", vocabulary_key_, "\"]: expected an integer");
    if (at_model("vocab") || at_model("merges")) return true;  // reported as missing
    place(json(std::forward<Value>(v)));
    return true;
  }

  json* place(json v) {
    if (open_.empty()) return &(out_.document = std::move(v));
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    return &(parent[keys_.back()] = std::move(v));
  }
  bool open(json container) {
    if (in_merges_) bad_merge("an object");
    if (open_.size() >= kMaxDepth) fail(what_, ": JSON is nested deeper than ", kMaxDepth, " levels");
    json* const placed = place(std::move(container));
    open_.push_back(placed);
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  bool token_id(std::int64_t id) {
    if (out_.vocabulary.size() >= kMaxEntries)
      fail(what_, ": model.vocab: more than ", kMaxEntries, " entries");
    out_.vocabulary.emplace_back(std::move(vocabulary_key_), id);
    return true;
  }

  bool merge_text(std::string& text) {
    if (in_pair_) {
      if (pair_.size() == 2) bad_merge("an array of more than 2");
      pair_.push_back(std::move(text));
      return true;
    }
    const std::size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) bad_merge("\"" + text + "\"");
    return add_merge(text.substr(0, space), text.substr(space + 1));
  }
  bool add_merge(std::string left, std::string right) {
    if (out_.merges.size() >= kMaxEntries) fail(what_, ": model.merges: more than ", kMaxEntries, " entries");
    out_.merges.emplace_back(std::move(left), std::move(right));
    return true;
  }
  [[noreturn]] void bad_merge(const std::string& found) const {
    fail(what_, ": model.merges[", out_.merges.size(), "]: found ", found,
         ", expected \"left right\" or [\"left\", \"right\"]");
  }

  TokenizerJson& out_;
  std::string_view what_;
  std::vector<json*> open_;        // containers of the document that are being read
  std::vector<std::string> keys_;  // the current key of each, empty in an array
  bool in_vocabulary_ = false;
  std::string vocabulary_key_;
  bool in_merges_ = false;
  bool in_pair_ = false;
  std::vector<std::string> pair_;
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, std::string_view what) {
  TokenizerJson out;
  TokenizerSax sax(out, what);
  json::sax_parse(text.begin(), text.end(), &sax);
  return out;
}

}  // namespace asynct
