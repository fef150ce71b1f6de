#include "asynct/text/grammar/schema_checks.h"

#include <algorithm>
#include <array>
#include <string>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/text/grammar/regex_escapes.h"

namespace asynct {
namespace {

using Names = std::initializer_list<const char*>;

// What no grammar of xgrammar's holds to.
constexpr Names kUnsupported = {"not",          "if",
                                "then",         "else",
                                "contains",     "minContains",
                                "maxContains",  "dependentRequired",
                                "dependencies", "dependentSchemas",
                                "$dynamicRef"};

// Each of these is taken alone, the first in this order: what stands beside it is passed over.
constexpr Names kAlone = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

constexpr Names kOfObjects = {
    "properties",    "required",      "additionalProperties", "patternProperties",
    "propertyNames", "minProperties", "maxProperties",        "unevaluatedProperties"};
constexpr Names kOfArrays = {"items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"};
constexpr Names kOfScalars = {"minimum",          "maximum",    "exclusiveMinimum",
                              "exclusiveMaximum", "multipleOf", "minLength",
                              "maxLength",        "pattern",    "format"};

// Below these are schemas: by name, in a list, or one.
constexpr Names kByName = {"properties", "patternProperties", "$defs", "definitions"};
constexpr Names kListed = {"anyOf", "oneOf", "allOf", "prefixItems"};
constexpr Names kSingle = {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
                           "propertyNames"};

const char* first_of(const Json& schema, Names names) {
  for (const char* const name : names)
    if (schema.contains(name)) return name;
  return nullptr;
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

bool has_type_of(const Json& value, const Json& types) {
  if (types.is_string()) return has_type(value, types.get<std::string>());
  return types.is_array() && std::any_of(types.begin(), types.end(), [&](const Json& type) {
           return type.is_string() && has_type(value, type.get<std::string>());
         });
}

[[noreturn]] void refuse(const std::string& where, std::string_view what) {
  fail("JSON schema: ", where.empty() ? "" : where + ": ", what);
}

// `alone` stands for the whole schema: nothing beside it may say more.
void check_alone(const Json& schema, const char* alone, const std::string& where) {
  const auto beside = [&](const char* name) {
    refuse(where, cat("`", name, "` beside `", alone, "` is not supported; put them into one schema"));
  };
  for (const Names names : {kAlone, kOfObjects, kOfArrays, kOfScalars})
    for (const char* const name : names)
      if (std::string_view(name) != alone && schema.contains(name)) beside(name);
  if (!schema.contains("type")) return;
  if (std::string_view(alone) != "const" && std::string_view(alone) != "enum") beside("type");
  const Json values = std::string_view(alone) == "const" ? Json::array({schema["const"]}) : schema["enum"];
  for (const Json& value : values)
    if (!has_type_of(value, schema["type"]))
      refuse(where, cat("a value of `", alone, "` is not of its `type`"));
}

void check(const Json& schema, const std::string& where) {
  if (schema.is_boolean()) return;
  if (!schema.is_object()) refuse(where, "expected an object, true or false");
  if (const char* const name = first_of(schema, kUnsupported))
    refuse(where, cat("`", name, "` is not supported"));
  if (schema.contains("uniqueItems") && schema["uniqueItems"] != Json(false))
    refuse(where, "`uniqueItems` is not supported");
  if (schema.contains("pattern") && schema["pattern"].is_string() &&
      has_byte_escapes(schema["pattern"].get_ref<const std::string&>()))
    refuse(where, R"(`pattern`: \xHH and \u00HH are not supported; put the characters themselves)");
  if (const char* const alone = first_of(schema, kAlone)) {
    check_alone(schema, alone, where);
  } else if (!schema.contains("type")) {
    // Without a type, only these say which one is meant.
    static constexpr Names kTelling = {"properties", "additionalProperties", "unevaluatedProperties",
                                       "items",      "prefixItems",          "unevaluatedItems"};
    if (first_of(schema, kTelling) == nullptr)
      for (const Names names : {kOfObjects, kOfArrays, kOfScalars})
        if (const char* const name = first_of(schema, names))
          refuse(where, cat("`", name, "` without a `type`"));
  }
  const auto below = [&](const Json& child, const std::string& name) { check(child, cat(where, "/", name)); };
  for (const char* const name : kByName)
    if (schema.contains(name)) {
      if (!schema[name].is_object()) refuse(where, cat("`", name, "`: expected an object"));
      for (const auto& [key, child] : schema[name].items()) below(child, cat(name, "/", key));
    }
  for (const char* const name : kListed)
    if (schema.contains(name)) {
      if (!schema[name].is_array()) refuse(where, cat("`", name, "`: expected a list"));
      for (const Json& child : schema[name]) below(child, name);
    }
  for (const char* const name : kSingle)
    if (schema.contains(name)) below(schema[name], name);
}

}  // namespace

void check_schema(std::string_view schema) { check(parse_json(schema, "JSON schema", 48), ""); }

}  // namespace asynct
