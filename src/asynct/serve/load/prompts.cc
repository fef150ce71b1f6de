#include "asynct/serve/load/prompts.h"

#include <algorithm>
#include <array>

#include "asynct/base/error.h"

namespace asynct::load {
namespace {

constexpr std::uint64_t kPrefixSeed = 0x70726566;  // prefixes stay when the number of prompts changes

// Common words: one token each, with the space before it, in the vocabularies of today's models.
constexpr std::array<std::string_view, 64> kWords = {
    "time",    "people", "way",   "water",  "day",    "man",   "woman",   "child", "world",  "life",
    "hand",    "part",   "place", "week",   "case",   "point", "house",   "home",  "room",   "night",
    "area",    "money",  "story", "fact",   "month",  "right", "study",   "book",  "eye",    "job",
    "word",    "side",   "kind",  "head",   "friend", "power", "hour",    "game",  "line",   "end",
    "member",  "law",    "car",   "city",   "name",   "team",  "minute",  "idea",  "kid",    "body",
    "face",    "level",  "door",  "health", "art",    "war",   "history", "party", "result", "change",
    "morning", "reason", "girl",  "moment"};

class RandomPrompts : public PromptSource {
 public:
  RandomPrompts(const LoadOptions& options, std::int64_t vocabulary)
      : options_(options),
        vocabulary_(options.endpoint == Endpoint::chat ? 0 : vocabulary),
        random_(options.seed) {
    Random random(options.seed ^ kPrefixSeed);
    for (std::int64_t i = 0; options.shared_prefix > 0 && i < options.prefixes; ++i)
      prefixes_.push_back(part(options.shared_prefix, random));
  }

  Prompt next() override {
    Prompt prompt;
    prompt.content = vocabulary_ > 0 ? Json::array() : Json("");
    if (!prefixes_.empty())
      prompt.content = prefixes_[static_cast<std::size_t>(random_.between(0, options_.prefixes - 1))];
    const std::int64_t own = options_.prompt_tokens.draw(random_);
    append(prompt.content, own, random_);
    prompt.tokens = vocabulary_ > 0 ? options_.shared_prefix + own : 0;
    prompt.output_tokens = options_.output_tokens.draw(random_);
    if (options_.endpoint == Endpoint::chat)
      prompt.content = Json::array({{{"role", "user"}, {"content", std::move(prompt.content)}}});
    return prompt;
  }

 private:
  Json part(std::int64_t tokens, Random& random) const {
    Json content = vocabulary_ > 0 ? Json::array() : Json("");
    append(content, tokens, random);
    return content;
  }

  void append(Json& content, std::int64_t tokens, Random& random) const {
    for (std::int64_t i = 0; i < tokens; ++i) {
      if (vocabulary_ > 0) {
        content.push_back(random.between(0, vocabulary_ - 1));
        continue;
      }
      auto& text = content.get_ref<std::string&>();
      if (!text.empty()) text += ' ';
      text += kWords[static_cast<std::size_t>(random.between(0, std::int64_t{kWords.size()} - 1))];
    }
  }

  const LoadOptions& options_;
  std::int64_t vocabulary_;
  Random random_;
  std::vector<Json> prefixes_;
};

bool is_token_list(const Json& value) {
  return value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), [](const Json& token) {
           return token.is_number_integer() && token >= 0 && token <= INT32_MAX;
         });
}

class GivenPrompts : public PromptSource {
 public:
  GivenPrompts(const LoadOptions& options, std::string_view lines, std::string_view what)
      : options_(options), random_(options.seed) {
    for (int number = 1; !lines.empty(); ++number) {
      const std::string_view line = lines.substr(0, lines.find('\n'));
      lines.remove_prefix(std::min(line.size() + 1, lines.size()));
      if (line.find_first_not_of(" \t\r") != std::string_view::npos)
        prompts_.push_back(parse(line, cat(what, ", line ", number)));
    }
    if (prompts_.empty()) fail(what, ": no prompts");
  }

  Prompt next() override {
    Prompt prompt = prompts_[next_];
    next_ = (next_ + 1) % prompts_.size();
    if (prompt.output_tokens == 0) prompt.output_tokens = options_.output_tokens.draw(random_);
    return prompt;
  }

 private:
  Prompt parse(std::string_view line, const std::string& what) const {
    const bool chat = options_.endpoint == Endpoint::chat;
    Json json = parse_json(line, what);
    Prompt prompt;
    if (!json.is_object()) {
      prompt.content = std::move(json);
    } else {
      if (const auto most = json.find("max_tokens"); most != json.end() && !most->is_null()) {
        if (!most->is_number_integer() || *most < 1 || *most > LengthDistribution::kMaxLength)
          fail(what, ": max_tokens: expected 1 to ", LengthDistribution::kMaxLength);
        prompt.output_tokens = most->get<std::int64_t>();
      }
      const auto content = json.find(chat && json.contains("messages") ? "messages" : "prompt");
      if (content == json.end()) fail(what, ": expected \"prompt\"", chat ? " or \"messages\"" : "");
      prompt.content = std::move(*content);
    }
    if (chat && prompt.content.is_string())
      prompt.content = Json::array({{{"role", "user"}, {"content", std::move(prompt.content)}}});
    const bool tokens = is_token_list(prompt.content);
    const bool messages =
        prompt.content.is_array() && !prompt.content.empty() && prompt.content[0].is_object();
    if (chat ? !messages : !(tokens || prompt.content.is_string()))
      fail(what, chat ? ": expected a text or chat messages" : ": expected a text or token ids");
    if (tokens) prompt.tokens = static_cast<std::int64_t>(prompt.content.size());
    return prompt;
  }

  const LoadOptions& options_;
  Random random_;
  std::vector<Prompt> prompts_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<PromptSource> random_prompts(const LoadOptions& options, std::int64_t vocabulary) {
  return std::make_unique<RandomPrompts>(options, vocabulary);
}

std::unique_ptr<PromptSource> given_prompts(const LoadOptions& options, std::string_view lines,
                                            std::string_view what) {
  return std::make_unique<GivenPrompts>(options, lines, what);
}

std::int64_t count_prompts(std::string_view lines) {
  std::int64_t count = 0;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) ++count;
  }
  return count;
}

std::string request_body(const LoadOptions& options, const std::string& model, const Prompt& prompt) {
  Json body;
  body["model"] = model;
  body[options.endpoint == Endpoint::chat ? "messages" : "prompt"] = prompt.content;
  body["max_tokens"] = prompt.output_tokens;
  body["temperature"] = options.temperature;
  if (options.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = options.stream;
  if (options.stream) body["stream_options"] = {{"include_usage", true}};
  return dump_json(body);
}

}  // namespace asynct::load
