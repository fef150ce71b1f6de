#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "asynct/base/json.h"

namespace asynct {

namespace jinja {
struct Program;
}

/// What a template from outside may use. Reaching a limit is an Error.
struct ChatTemplateLimits {
  std::size_t source_bytes = std::size_t{1} << 20;
  int depth = 100;                                   // brackets and blocks in each other, values, macro calls
  std::size_t steps = 1'000'000;                     // expressions, statements, elements that filters visit
  std::size_t output_bytes = std::size_t{64} << 20;  // of the rendered text
  std::size_t allocated_bytes = std::size_t{1} << 30;  // of all values that one render() makes, in sum
  std::size_t range_length = 100'000;                  // of range()
};

struct ChatTemplateOptions {
  ChatTemplateLimits limits;
  std::function<std::time_t()> clock = [] { return std::time(nullptr); };  // read by strftime_now
};

/// A Hugging Face chat template: the subset of Jinja in docs/chat-templates.md, with the semantics of
/// jinja2's ImmutableSandboxedEnvironment as transformers sets it up (trim_blocks, lstrip_blocks, loop
/// controls). Immutable once made; any number of threads may render it.
class ChatTemplate {
 public:
  /// Errors: syntax, or anything outside of the subset, with its line and the construct's name; limits.
  /// `name` opens every message.
  explicit ChatTemplate(std::string_view source, std::string_view name = "chat template",
                        ChatTemplateOptions options = {});

  /// The text for `variables`, an object: messages, add_generation_prompt, bos_token, eos_token, tools, ...
  /// Strings are well-formed UTF-8 (ill-formed parts become U+FFFD).
  /// Errors: what the template raises by raise_exception (its message follows the name), type errors,
  /// operations on undefined values, integers beyond 64 bits, limits.
  std::string render(const Json& variables) const;

 private:
  std::shared_ptr<const jinja::Program> program_;
};

struct ChatTemplateSource {
  std::string name;  // where it was found
  std::string text;
};

/// The template of a checkpoint: the file chat_template.jinja beside tokenizer_config.json if it is there,
/// else `chat_template` of that file, a string or a list of {"name", "template"}. `path` names the directory
/// or tokenizer_config.json itself. Of a list, "tool_use" is taken when `for_tools` and it is there, else
/// "default". Empty: there is none. Errors: unreadable or malformed files, more than `limit` bytes.
std::optional<ChatTemplateSource> find_chat_template(const std::string& path, bool for_tools = false,
                                                     std::size_t limit = ChatTemplateLimits{}.source_bytes);

/// The same, made ready. Errors: there is none; those of find_chat_template and ChatTemplate.
ChatTemplate load_chat_template(const std::string& path, bool for_tools = false,
                                ChatTemplateOptions options = {});

}  // namespace asynct
