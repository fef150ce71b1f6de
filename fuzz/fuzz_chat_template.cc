// A template and JSON of its variables, with a NUL byte between them. Whatever loads must render to
// well-formed UTF-8 or end in an Error, within its limits, and render the same again.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "asynct/base/error.h"
#include "asynct/text/chat_template/chat_template.h"
#include "asynct/text/utf8.h"

namespace {

std::optional<std::string> render(const asynct::ChatTemplate& chat_template, const asynct::Json& variables) {
  try {
    return chat_template.render(variables);
  } catch (const asynct::Error&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t border = std::min(input.find('\0'), size);
  const std::string_view json = border < size ? input.substr(border + 1) : std::string_view("{}");
  asynct::ChatTemplateOptions options;
  options.limits.steps = 20'000;
  options.limits.output_bytes = std::size_t{1} << 20;
  options.limits.allocated_bytes = std::size_t{32} << 20;
  options.clock = [] { return std::time_t{0}; };
  try {
    const asynct::Json variables = asynct::parse_json(json, "fuzz");
    const asynct::ChatTemplate chat_template(input.substr(0, border), "fuzz", options);
    const auto text = render(chat_template, variables);
    if (text.has_value() && (!asynct::is_valid_utf8(*text) || text->size() > options.limits.output_bytes))
      std::abort();
    if (text != render(chat_template, variables)) std::abort();
  } catch (const asynct::Error&) {
  }
  return 0;
}
