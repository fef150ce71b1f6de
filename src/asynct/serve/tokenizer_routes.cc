#include "asynct/serve/tokenizer_routes.h"

#include "asynct/serve/chat.h"
#include "asynct/serve/completions.h"
#include "asynct/serve/json_writer.h"
#include "asynct/serve/logprob_lists.h"
#include "asynct/serve/request_fields.h"

namespace asynct::serve {

std::string tokenize(const Context& context, const http::HttpRequest& request) {
  const Json body = Fields::parse(request.body);
  const Fields fields(body);
  check_model(context, fields);
  const bool chat = fields.has("messages");
  const std::string text =
      chat ? render_chat(context, fields) : fields.text("prompt", {}, context.limits.prompt_bytes);
  if (!chat && !fields.has("prompt")) throw RequestError("prompt: missing", "prompt");
  const auto tokens =
      context.tokenizer.encode(text, {.add_special_tokens = fields.boolean("add_special_tokens", !chat)});
  std::string out = "{\"count\":";
  append_json(out, static_cast<std::int64_t>(tokens.size()));
  out += ",\"max_model_len\":";
  append_json(out, context.max_length);
  out += ",\"tokens\":[";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append_json(out, std::int64_t{tokens[i]});
  }
  out += ']';
  if (fields.boolean("return_token_strs", false)) {
    out += ",\"token_strs\":[";
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out += ',';
      append_json(out, std::string_view(token_text(context.tokenizer, tokens[i])));
    }
    out += ']';
  }
  out += '}';
  return out;
}

std::string detokenize(const Context& context, const http::HttpRequest& request) {
  const Json body = Fields::parse(request.body);
  const Fields fields(body);
  check_model(context, fields);
  if (!fields.has("tokens")) throw RequestError("tokens: missing", "tokens");
  const auto tokens = fields.tokens("tokens", context.limits.prompt_bytes, context.vocabulary);
  std::string out = "{\"prompt\":";
  append_json(out, std::string_view(context.tokenizer.decode(tokens)));
  out += '}';
  return out;
}

std::string tokenizer_info(const Context& context, const std::string& chat_template_source) {
  Json info = Json::object();
  const auto special = [&](const char* name, std::optional<Token> token) {
    info[name] = token ? Json(context.tokenizer.decode({&*token, 1})) : Json();
  };
  special("bos_token", context.tokenizer.bos());
  special("eos_token", context.tokenizer.eos());
  special("pad_token", context.tokenizer.pad());
  info["add_bos_token"] = context.tokenizer.adds_bos();
  info["vocab_size"] = context.tokenizer.vocab_size();
  info["model_max_length"] = context.max_length;
  info["chat_template"] = chat_template_source.empty() ? Json() : Json(chat_template_source);
  return dump_json(info);
}

std::string apply_template(const Context& context, const http::HttpRequest& request) {
  const Json body = Fields::parse(request.body);
  std::string out = "{\"prompt\":";
  append_json(out, std::string_view(render_chat(context, Fields(body))));
  out += '}';
  return out;
}

}  // namespace asynct::serve
