#include "asynct/text/chat_template/chat_template.h"

#include <filesystem>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"
#include "asynct/text/chat_template/evaluator.h"
#include "asynct/text/chat_template/parser.h"

namespace asynct {

ChatTemplate::ChatTemplate(std::string_view source, std::string_view name, ChatTemplateOptions options)
    : program_(
          std::make_shared<const jinja::Program>(jinja::parse_program(source, name, std::move(options)))) {}

std::string ChatTemplate::render(const Json& variables) const {
  jinja::Evaluator evaluator(*program_);
  try {
    return evaluator.run(variables);
  } catch (const jinja::RaisedByTemplate& raised) {
    fail(program_->name, ": ", raised.message);
  } catch (const Error& error) {
    fail(program_->name, ":", evaluator.line(), ": ", std::string_view(error.what()));
  }
}

namespace {

constexpr std::size_t kLargestConfig = std::size_t{64} << 20;  // added tokens make it long

/// chat_template of tokenizer_config.json: a string, or the list's entry that is wanted.
std::string choose_template(const Json& found, bool for_tools, const std::string& what) {
  if (found.is_string()) return found.get<std::string>();
  if (!found.is_array()) fail(what, ": chat_template: expected a string or a list");
  const std::string* chosen = nullptr;
  for (const Json& entry : found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string())
      fail(what, ": chat_template: expected objects of a \"name\" and a \"template\"");
    const auto& name = entry["name"].get_ref<const std::string&>();
    const bool wanted = for_tools && name == "tool_use";
    if (wanted || (name == "default" && chosen == nullptr))
      chosen = &entry["template"].get_ref<const std::string&>();
    if (wanted) break;
  }
  if (chosen == nullptr) fail(what, ": chat_template: no template is named \"default\"");
  return *chosen;
}

}  // namespace

std::optional<ChatTemplateSource> find_chat_template(const std::string& path, bool for_tools,
                                                     std::size_t limit) {
  namespace fs = std::filesystem;
  const fs::path config = fs::is_directory(path) ? fs::path(path) / "tokenizer_config.json" : fs::path(path);
  const fs::path file = config.parent_path() / "chat_template.jinja";
  if (fs::exists(file)) return ChatTemplateSource{file.string(), read_file(file.string(), limit)};
  if (!fs::exists(config)) return {};
  const Json document = parse_json_file(config.string(), kLargestConfig);
  if (!document.is_object() || !document.contains("chat_template") || document["chat_template"].is_null())
    return {};
  return ChatTemplateSource{config.string(),
                            choose_template(document["chat_template"], for_tools, config.string())};
}

ChatTemplate load_chat_template(const std::string& path, bool for_tools, ChatTemplateOptions options) {
  const auto source = find_chat_template(path, for_tools, options.limits.source_bytes);
  if (!source)
    fail(path, ": no chat_template in tokenizer_config.json, and no chat_template.jinja beside it");
  return ChatTemplate(source->text, source->name, std::move(options));
}

}  // namespace asynct
