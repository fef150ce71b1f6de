#include "asynct/text/grammar/schema_references.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace asynct {
namespace {

// "%2F" is "/"; what is no such escape stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// "~1" is "/", "~0" is "~".
std::string name_of(std::string_view part) {
  std::string name;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const bool escape = part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1');
    name += !escape ? part[i] : part[++i] == '1' ? '/' : '~';
  }
  return name;
}

const Json* child(const Json& parent, std::string_view part) {
  if (parent.is_object()) {
    const auto found = parent.find(name_of(part));
    return found != parent.end() ? &*found : nullptr;
  }
  std::size_t index = 0;
  const char* const end = part.data() + part.size();
  if (!parent.is_array() || std::from_chars(part.data(), end, index).ptr != end || index >= parent.size())
    return nullptr;
  return &parent[index];
}

}  // namespace

const Json* referred_to(const Json& root, std::string_view reference) {
  if (reference == "#") return &root;
  if (!reference.starts_with("#/")) return nullptr;
  const std::string pointer = percent_decoded(reference.substr(2));
  const Json* at = &root;
  for (std::size_t begin = 0; at != nullptr && begin <= pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
    at = child(*at, std::string_view(pointer).substr(begin, end - begin));
    begin = end + 1;
  }
  return at;
}

}  // namespace asynct
