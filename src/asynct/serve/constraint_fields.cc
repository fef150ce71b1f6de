#include "asynct/serve/constraint_fields.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace asynct::serve {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 10;
constexpr std::size_t kMostChoices = 1024;

struct Asked {
  std::string field;  // that says so
  Grammar grammar;
};

/// Reads what the fields say; one of them may say something. Errors begin with the field's name.
class Reader {
 public:
  template <class Function>
  void read(const std::string& field, const Fields& fields, Function function) {
    const Json* const value = fields.find(field.c_str());
    if (value == nullptr) return;
    field_ = field;
    try {
      function(*value);
    } catch (const RequestError& error) {
      throw RequestError(cat(field, ": ", error.what()), field, error.status, error.code);
    } catch (const Error& error) {
      throw RequestError(cat(field, ": ", error.what()), field);
    }
  }

  void response_format(const Json& format) {
    if (!format.is_object()) fail("expected an object");
    const std::string type = Fields(format).text("type", "", kMostBytes);
    if (type == "text") return;
    if (type == "json_object") return add(any_object());
    if (type != "json_schema") fail(R"(expected the type "text", "json_object" or "json_schema")");
    const Json* const inner = Fields(format).find("json_schema");
    const Json* const schema =
        inner != nullptr && inner->is_object() ? Fields(*inner).find("schema") : nullptr;
    if (schema == nullptr) fail(R"(expected "json_schema": {"schema": ...})");
    constraint("json", *schema);
  }

  void structured_outputs(const Json& outputs) {
    if (!outputs.is_object()) fail("expected an object");
    const Fields fields(outputs);
    any_whitespace_ = !fields.boolean("disable_any_whitespace", false);
    for (const char* const what : {"structural_tag", "whitespace_pattern"})
      if (fields.has(what)) unsupported(what);
    if (fields.boolean("disable_additional_properties", false)) unsupported("disable_additional_properties");
    const bool had = asked_.has_value();
    for (const char* const what : {"json", "regex", "choice", "grammar"})
      if (const Json* const value = fields.find(what)) constraint(what, *value);
    if (fields.boolean("json_object", false)) add(any_object());
    if (!asked_ || had) fail("expected one of json, json_object, regex, choice, grammar");
  }

  void constraint(std::string_view what, const Json& value) {
    if (what == "json") {  // a schema, or text that holds it
      add({.kind = Grammar::Kind::json_schema,
           .text = value.is_string() ? value.get<std::string>() : dump_json(value)});
    } else if (what == "choice") {
      add(choice_grammar(choices_of(value)));
    } else {
      if (!value.is_string()) fail("expected a string");
      add({.kind = what == "regex" ? Grammar::Kind::regex : Grammar::Kind::ebnf,
           .text = value.get<std::string>()});
    }
  }

  const std::optional<Asked>& asked() const { return asked_; }

 private:
  [[noreturn]] static void unsupported(const char* what) {
    throw RequestError(cat(what, ": this server cannot do that"), what, 400, "unsupported");
  }

  static Grammar any_object() { return {.kind = Grammar::Kind::json_schema, .text = R"({"type":"object"})"}; }

  static std::vector<std::string> choices_of(const Json& value) {
    if (!value.is_array()) fail("expected a list of strings");
    if (value.size() > kMostChoices) fail(value.size(), " choices, expected at most ", kMostChoices);
    std::vector<std::string> choices;
    for (const Json& item : value) {
      if (!item.is_string()) fail("expected a list of strings");
      choices.push_back(item.get<std::string>());
    }
    return choices;
  }

  void add(Grammar grammar) {
    if (asked_) fail("beside ", asked_->field, "; expected one constraint");
    grammar.any_whitespace = any_whitespace_;
    asked_ = Asked{field_, std::move(grammar)};
  }

  std::string field_;  // that is being read
  bool any_whitespace_ = true;
  std::optional<Asked> asked_;
};

}  // namespace

std::shared_ptr<const Constraint> constraint_of(const Fields& fields, const GrammarCompiler* compiler,
                                                bool beam_search) {
  constexpr const char* kPattern = "guided_whitespace_pattern";
  if (fields.has(kPattern))
    throw RequestError(cat(kPattern, ": this server cannot do that"), kPattern, 400, "unsupported");
  Reader reader;
  reader.read("response_format", fields, [&](const Json& value) { reader.response_format(value); });
  reader.read("structured_outputs", fields, [&](const Json& value) { reader.structured_outputs(value); });
  for (const char* const what : {"json", "regex", "choice", "grammar"})
    reader.read(cat("guided_", what), fields, [&](const Json& value) { reader.constraint(what, value); });
  if (!reader.asked()) return nullptr;
  const auto& [field, grammar] = *reader.asked();
  if (beam_search)
    throw RequestError(cat(field, ": this server cannot do that in a beam search"), field, 400,
                       "unsupported");
  if (compiler == nullptr || !GrammarCompiler::available())
    throw RequestError(cat(field, ": this server was built without constrained decoding"), field, 400,
                       "unsupported");
  try {
    return compiler->compile(grammar);
  } catch (const Error& error) {
    throw RequestError(cat(field, ": ", error.what()), field);
  }
}

}  // namespace asynct::serve
