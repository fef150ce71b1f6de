#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/text/token.h"

namespace asynct::serve {

/// What is wrong with a request; the client's fault.
class RequestError : public Error {
 public:
  RequestError(std::string message, std::string param, int status = 400, std::string code = {})
      : Error(std::move(message)), param(std::move(param)), status(status), code(std::move(code)) {}

  std::string param;  // the field at fault; may be empty
  int status;
  std::string code;
};

/// The fields of a JSON request, each read with its type and limits. A field that is null counts as absent.
/// RequestError names the field, what was found and what was expected.
class Fields {
 public:
  /// Parses a body; RequestError when it is no JSON object. `body` may hold anything.
  static Json parse(std::string_view body);

  /// `object` must outlive it.
  explicit Fields(const Json& object) : object_(object) {}

  /// Null when absent.
  const Json* find(const char* name) const;
  bool has(const char* name) const { return find(name) != nullptr; }

  std::optional<std::int64_t> maybe_integer(const char* name, std::int64_t least, std::int64_t most) const;
  std::int64_t integer(const char* name, std::int64_t otherwise, std::int64_t least, std::int64_t most) const;
  double number(const char* name, double otherwise, double least, double most) const;
  bool boolean(const char* name, bool otherwise) const;
  std::string text(const char* name, std::string_view otherwise, std::size_t most_bytes) const;
  /// A string, or a list of strings.
  std::vector<std::string> texts(const char* name, std::size_t most, std::size_t most_bytes) const;
  /// A list of token ids below `vocabulary`.
  std::vector<Token> tokens(const char* name, std::size_t most, std::int64_t vocabulary) const;

 private:
  const Json& object_;
};

/// The ids of a JSON list; RequestError with `name` for anything else in it.
std::vector<Token> token_ids(const Json& list, const char* name, std::size_t most, std::int64_t vocabulary);

}  // namespace asynct::serve
