#include "asynct/serve/models.h"

#include <algorithm>
#include <charconv>

#include "asynct/base/json.h"
#include "asynct/serve/request_fields.h"

namespace asynct::serve {
namespace {

Json model_of(const Context& context, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", context.created},
          {"owned_by", "asynct"},
          {"root", context.model_names.front()},
          {"parent", Json()},
          {"max_model_len", context.max_length}};
}

// What is no escape stays as it is: no name of ours is found then.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const std::string_view digits = text.substr(i).substr(1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (text[i] == '%' && digits.size() == 2 && error == std::errc() && end == digits.data() + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

std::string models_json(const Context& context) {
  Json list = {{"object", "list"}, {"data", Json::array()}};
  for (const std::string& name : context.model_names) list["data"].push_back(model_of(context, name));
  return dump_json(list);
}

std::string model_json(const Context& context, std::string_view id) {
  const std::string name = percent_decoded(id);
  check_model_name(context, name);
  return dump_json(model_of(context, name));
}

void check_model_name(const Context& context, const std::string& name) {
  const auto& names = context.model_names;
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw RequestError(cat("The model `", name, "` does not exist; this server has `", names.front(), "`"),
                       "model", 404, "model_not_found");
}

}  // namespace asynct::serve
