#include "asynct/serve/completions.h"

#include <algorithm>
#include <utility>

#include "asynct/serve/answer_parts.h"
#include "asynct/serve/constraint_fields.h"
#include "asynct/serve/generation.h"
#include "asynct/serve/json_writer.h"
#include "asynct/serve/logprob_lists.h"
#include "asynct/serve/models.h"
#include "asynct/serve/request_fields.h"

namespace asynct::serve {

void check_model(const Context& context, const Fields& fields) {
  check_model_name(context, fields.text("model", context.model_names.front(), 4096));
}

std::vector<Token> encode_prompt(const Context& context, std::string_view text, bool add_special,
                                 const char* field) {
  try {
    return context.tokenizer.encode(text, {.add_special_tokens = add_special,
                                           .most_tokens = static_cast<std::size_t>(context.max_length)});
  } catch (const TooManyTokens&) {
    throw RequestError(cat("This model's maximum context length is ", context.max_length, " tokens; the ",
                           text.size(), " bytes of ", field, " are more"),
                       field, 400, "context_length_exceeded");
  }
}

std::int64_t tokens_to_generate(const Context& context, std::int64_t prompt_tokens,
                                const std::optional<std::int64_t>& asked, std::int64_t otherwise) {
  const std::int64_t room = context.max_length - prompt_tokens;
  if (room < 0 || (asked && *asked > room))
    throw RequestError(
        cat("This model's maximum context length is ", context.max_length, " tokens; you asked for ",
            prompt_tokens, " in the prompt and ", asked.value_or(0), " to generate"),
        asked && room >= 0 ? "max_tokens" : "prompt", 400, "context_length_exceeded");
  return asked.value_or(std::min(room, otherwise));
}

namespace {

class CompletionFormat : public ResponseFormat {
 public:
  explicit CompletionFormat(std::size_t choices) : offsets_(choices, 0), echoed_(choices, false) {}

  void open(const Generation& /*generation*/, std::string& /*out*/) override {}

  void add_delta(const Generation& generation, std::size_t index, const ChoiceDelta& delta,
                 std::string& out) override {
    const bool echo = generation.ask().echo && !std::exchange(echoed_[index], true);
    begin(generation, "data: ", out);
    add_choice(generation, index, delta, echo, out);
    out += "]}\n\n";
  }

  void add_usage(const Generation& generation, const Usage& usage, std::string& out) override {
    begin(generation, "data: ", out);
    out += ']';
    append_usage(out, usage);
    out += "}\n\n";
  }

  void whole(const Generation& generation, const std::vector<ChoiceDelta>& choices, const Usage& usage,
             std::string& out) override {
    begin(generation, "", out);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (i > 0) out += ',';
      add_choice(generation, i, choices[i], generation.ask().echo, out);
    }
    out += ']';
    append_usage(out, usage);
    out += '}';
  }

 private:
  static void begin(const Generation& generation, std::string_view prefix, std::string& out) {
    out += prefix;
    out += "{\"id\":";
    append_json(out, std::string_view(generation.ask().id));
    out += ",\"object\":\"text_completion\",\"created\":";
    append_json(out, generation.created());
    out += ",\"model\":";
    append_json(out, std::string_view(generation.context().model_names.front()));
    out += ",\"choices\":[";
  }

  void add_choice(const Generation& generation, std::size_t index, const ChoiceDelta& delta, bool with_prompt,
                  std::string& out) {
    out += "{\"index\":";
    append_json(out, static_cast<std::int64_t>(index));
    out += ",\"text\":";
    append_json(out,
                std::string_view(with_prompt ? generation.prompt_of(index).text + delta.text : delta.text));
    out += ",\"logprobs\":";
    if (generation.ask().options.logprobs >= 0) {
      write_lists(generation, index, delta.tokens, with_prompt, out);
    } else {
      out += "null";
    }
    append_ending(out, delta);
    out += '}';
  }

  void write_lists(const Generation& generation, std::size_t index, const std::vector<AnswerToken>& tokens,
                   bool with_prompt, std::string& out) {
    LogprobLists lists(generation.context().tokenizer, offsets_[index]);
    if (with_prompt) {
      const Prompt& prompt = generation.prompt_of(index);
      lists.add_first(prompt.tokens.front());
      for (std::size_t i = 1; i < prompt.tokens.size(); ++i) {
        if (prompt.tops.empty()) {
          lists.add(prompt.tokens[i], prompt.scores[i - 1]);
        } else {
          lists.add(prompt.tokens[i], prompt.scores[i - 1], prompt.tops[i - 1]);
        }
      }
    }
    for (const AnswerToken& token : tokens) lists.add(token);
    lists.write(out);
    offsets_[index] = lists.offset();
  }

  std::vector<std::int64_t> offsets_;  // of the text so far, in characters
  std::vector<char> echoed_;
};

Prompt prompt_of_text(const Context& context, std::string text, bool add_special) {
  if (text.size() > context.limits.prompt_bytes)
    throw RequestError(cat("prompt: ", text.size(), " bytes, expected at most ", context.limits.prompt_bytes),
                       "prompt");
  Prompt prompt{.tokens = encode_prompt(context, text, add_special, "prompt")};
  prompt.text = std::move(text);
  return prompt;
}

std::vector<Prompt> prompts_of(const Context& context, const Fields& fields, bool add_special) {
  const Json* const value = fields.find("prompt");
  if (value == nullptr) throw RequestError("prompt: missing", "prompt");
  const auto most_tokens = static_cast<std::size_t>(context.max_length);
  const auto of_ids = [&](const Json& ids) {
    if (ids.size() > most_tokens)  // said in the words that clients look for
      tokens_to_generate(context, static_cast<std::int64_t>(ids.size()), std::nullopt, 0);
    Prompt prompt{.tokens = token_ids(ids, "prompt", most_tokens, context.vocabulary)};
    prompt.text = context.tokenizer.decode(prompt.tokens);
    return prompt;
  };
  std::vector<Prompt> prompts;
  if (value->is_string()) {
    prompts.push_back(prompt_of_text(context, value->get<std::string>(), add_special));
  } else if (value->is_array() && !value->empty() && value->front().is_number()) {
    prompts.push_back(of_ids(*value));
  } else if (value->is_array()) {
    if (value->size() > context.limits.prompts)
      throw RequestError(
          cat("prompt: ", value->size(), " prompts, expected at most ", context.limits.prompts), "prompt");
    for (const Json& item : *value) {
      if (item.is_string()) {
        prompts.push_back(prompt_of_text(context, item.get<std::string>(), add_special));
      } else if (item.is_array()) {
        prompts.push_back(of_ids(item));
      } else {
        throw RequestError("prompt: expected strings or lists of token ids", "prompt");
      }
    }
  } else {
    throw RequestError("prompt: expected a string, a list of token ids, or a list of these", "prompt");
  }
  for (Prompt& prompt : prompts) {
    // As vLLM: nothing to begin with becomes the token that begins a text.
    if (prompt.tokens.empty() && context.tokenizer.bos()) prompt.tokens = {*context.tokenizer.bos()};
    if (prompt.tokens.empty()) throw RequestError("prompt: no tokens; a prompt needs at least one", "prompt");
  }
  if (prompts.empty()) throw RequestError("prompt: an empty list", "prompt");
  return prompts;
}

}  // namespace

void handle_completions(const Context& context, const http::HttpRequest& request,
                        std::shared_ptr<http::Responder> responder) {
  const Json body = Fields::parse(request.body);
  const Fields fields(body);
  check_model(context, fields);
  Generation::Ask ask{.id = "cmpl-" + request.id,
                      .options = generation_options(fields, context.vocabulary, context.limits)};
  ask.options.logprobs =
      static_cast<std::int32_t>(fields.integer("logprobs", -1, 0, context.limits.top_logprobs));
  ask.echo = fields.boolean("echo", false);
  ask.score_prompt = ask.echo && ask.options.logprobs >= 0;
  ask.prompts = prompts_of(context, fields, fields.boolean("add_special_tokens", true));
  const std::size_t choices = ask.prompts.size() * static_cast<std::size_t>(ask.options.n);
  if (choices > context.limits.total_choices)
    throw RequestError(
        cat("n: ", choices, " choices in all, expected at most ", context.limits.total_choices), "n");
  const auto asked = fields.maybe_integer("max_tokens", 0, INT32_MAX);
  if (asked == 0 && !ask.echo)
    throw RequestError("max_tokens: 0, expected at least 1, or \"echo\": true", "max_tokens");
  std::int64_t longest = 0;
  for (const Prompt& prompt : ask.prompts)
    longest = std::max<std::int64_t>(longest, std::ssize(prompt.tokens));
  ask.max_tokens = tokens_to_generate(context, longest, asked, 16);
  ask.options.constraint = constraint_of(fields, context.grammars, ask.options.beam_search.has_value());
  std::make_shared<Generation>(context, std::move(ask), std::make_unique<CompletionFormat>(choices),
                               std::move(responder))
      ->start();
}

}  // namespace asynct::serve
