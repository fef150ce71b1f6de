#include "asynct/serve/chat.h"

#include <utility>

#include "asynct/serve/answer_parts.h"
#include "asynct/serve/completions.h"
#include "asynct/serve/constraint_fields.h"
#include "asynct/serve/generation.h"
#include "asynct/serve/json_writer.h"
#include "asynct/serve/logprob_lists.h"
#include "asynct/text/chat_template/chat_template.h"

namespace asynct::serve {
namespace {

class ChatFormat : public ResponseFormat {
 public:
  void open(const Generation& generation, std::string& out) override {
    const auto choices = static_cast<std::size_t>(generation.ask().options.n);
    for (std::size_t i = 0; i < choices; ++i) {
      begin(generation, true, out);
      out += "{\"index\":";
      append_json(out, static_cast<std::int64_t>(i));
      out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})";
      out += "\n\n";
    }
  }

  void add_delta(const Generation& generation, std::size_t index, const ChoiceDelta& delta,
                 std::string& out) override {
    begin(generation, true, out);
    add_choice(generation, index, delta, "delta", "", out);
    out += "]}\n\n";
  }

  void add_usage(const Generation& generation, const Usage& usage, std::string& out) override {
    begin(generation, true, out);
    out += ']';
    append_usage(out, usage);
    out += "}\n\n";
  }

  void whole(const Generation& generation, const std::vector<ChoiceDelta>& choices, const Usage& usage,
             std::string& out) override {
    begin(generation, false, out);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (i > 0) out += ',';
      add_choice(generation, i, choices[i], "message", "\"role\":\"assistant\",", out);
    }
    out += ']';
    append_usage(out, usage);
    out += '}';
  }

 private:
  static void begin(const Generation& generation, bool event, std::string& out) {
    out += event ? "data: {\"id\":" : "{\"id\":";
    append_json(out, std::string_view(generation.ask().id));
    out += event ? ",\"object\":\"chat.completion.chunk\",\"created\":"
                 : ",\"object\":\"chat.completion\",\"created\":";
    append_json(out, generation.created());
    out += ",\"model\":";
    append_json(out, std::string_view(generation.context().model_names.front()));
    out += ",\"choices\":[";
  }

  static void add_choice(const Generation& generation, std::size_t index, const ChoiceDelta& delta,
                         std::string_view container, std::string_view role, std::string& out) {
    out += "{\"index\":";
    append_json(out, static_cast<std::int64_t>(index));
    out += ",\"";
    out += container;
    out += "\":{";
    out += role;
    out += "\"content\":";
    append_json(out, std::string_view(delta.text));
    out += "},\"logprobs\":";
    if (generation.ask().options.logprobs >= 0) {
      out += "{\"content\":[";
      for (std::size_t i = 0; i < delta.tokens.size(); ++i) {
        if (i > 0) out += ',';
        add_token(generation, delta.tokens[i], out);
      }
      out += "]}";
    } else {
      out += "null";
    }
    append_ending(out, delta);
    out += '}';
  }

  static void add_token(const Generation& generation, const AnswerToken& token, std::string& out) {
    const Tokenizer& tokenizer = generation.context().tokenizer;
    const auto entry = [&](Token id, float logprob) {
      out += "\"token\":";
      append_json(out, std::string_view(token_text(tokenizer, id)));
      out += ",\"logprob\":";
      append_json(out, logprob);
      out += ",\"bytes\":[";
      bool first = true;
      for (const char byte : tokenizer.token_bytes(id)) {
        if (!std::exchange(first, false)) out += ',';
        append_json(out, std::int64_t{static_cast<unsigned char>(byte)});
      }
      out += ']';
    };
    float own = 0;
    for (const TokenLogprob& top : token.logprobs)
      if (top.token == token.token) own = top.logprob;
    out += '{';
    entry(token.token, own);
    out += ",\"top_logprobs\":[";
    const auto most = static_cast<std::size_t>(generation.ask().options.logprobs);
    for (std::size_t i = 0; i < std::min(most, token.logprobs.size()); ++i) {
      out += i > 0 ? ",{" : "{";
      entry(token.logprobs[i].token, token.logprobs[i].logprob);
      out += '}';
    }
    out += "]}";
  }
};

// Text content may come in parts; what is no text is refused.
Json message_of(const Json& message) {
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
    throw RequestError("messages: expected objects with a \"role\"", "messages");
  Json copy = message;
  if (!copy.contains("content") || copy["content"].is_null()) {
    copy["content"] = "";
  } else if (copy["content"].is_array()) {
    std::string text;
    for (const Json& part : copy["content"]) {
      if (!part.is_object() || part.value("type", Json()) != Json("text") || !part.contains("text") ||
          !part["text"].is_string())
        throw RequestError("messages: this model reads text only; expected parts of type \"text\"",
                           "messages");
      text += part["text"].get<std::string>();
    }
    copy["content"] = text;
  } else if (!copy["content"].is_string()) {
    throw RequestError("messages: \"content\" is neither a string nor a list of parts", "messages");
  }
  return copy;
}

}  // namespace

std::string render_chat(const Context& context, const Fields& fields) {
  if (context.chat_template == nullptr) throw RequestError(context.no_template, "messages");
  const Json* const messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty())
    throw RequestError("messages: expected a list of at least one message", "messages");
  if (messages->size() > context.limits.messages)
    throw RequestError(
        cat("messages: ", messages->size(), " of them, expected at most ", context.limits.messages),
        "messages");
  Json variables = Json::object();
  // What a request adds for its template; the names below are the server's.
  if (const Json* const more = fields.find("chat_template_kwargs")) {
    if (!more->is_object())
      throw RequestError("chat_template_kwargs: expected an object", "chat_template_kwargs");
    variables = *more;
  }
  variables["messages"] = Json::array();
  for (const Json& message : *messages) variables["messages"].push_back(message_of(message));
  variables["add_generation_prompt"] = fields.boolean("add_generation_prompt", true);
  const auto special = [&](const char* name, std::optional<Token> token) {
    if (token) variables[name] = context.tokenizer.decode({&*token, 1});
  };
  special("bos_token", context.tokenizer.bos());
  special("eos_token", context.tokenizer.eos());
  try {
    return context.chat_template->render(variables);
  } catch (const Error& error) {
    throw RequestError(error.what(), "messages");
  }
}

void handle_chat(const Context& context, const http::HttpRequest& request,
                 std::shared_ptr<http::Responder> responder) {
  const Json body = Fields::parse(request.body);
  const Fields fields(body);
  check_model(context, fields);
  Generation::Ask ask{.id = "chatcmpl-" + request.id,
                      .options = generation_options(fields, context.vocabulary, context.limits)};
  if (fields.boolean("echo", false))
    throw RequestError("echo: this server cannot do that in a chat", "echo", 400, "unsupported");
  if (fields.boolean("logprobs", false)) {
    ask.options.logprobs =
        static_cast<std::int32_t>(fields.integer("top_logprobs", 0, 0, context.limits.top_logprobs));
  } else if (fields.integer("top_logprobs", 0, 0, context.limits.top_logprobs) > 0) {
    throw RequestError("top_logprobs: only with \"logprobs\": true", "top_logprobs");
  }
  const std::string text = render_chat(context, fields);
  // The template writes special tokens itself.
  ask.prompts.push_back({.tokens = encode_prompt(context, text, false, "messages")});
  const auto tokens = std::ssize(ask.prompts[0].tokens);
  if (tokens == 0) throw RequestError("messages: the template made an empty prompt of them", "messages");
  auto asked =
      fields.maybe_integer("max_tokens", 1, INT32_MAX);  // its older name; wrong values are told of both
  if (const auto newer = fields.maybe_integer("max_completion_tokens", 1, INT32_MAX)) asked = newer;
  ask.max_tokens = tokens_to_generate(context, tokens, asked, context.max_length);
  if (ask.max_tokens == 0)
    throw RequestError(cat("messages: ", tokens, " tokens fill the context of ", context.max_length),
                       "messages", 400, "context_length_exceeded");
  ask.options.constraint = constraint_of(fields, context.grammars, ask.options.beam_search.has_value());
  std::make_shared<Generation>(context, std::move(ask), std::make_unique<ChatFormat>(), std::move(responder))
      ->start();
}

}  // namespace asynct::serve
