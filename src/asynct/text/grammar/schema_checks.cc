#include "asynct/text/grammar/schema_checks.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/text/grammar/regex_escapes.h"
#include "asynct/text/grammar/schema_references.h"

namespace asynct {
namespace {

using Names = std::initializer_list<const char*>;

// What no grammar of xgrammar's holds to.
constexpr Names kUnsupported = {"not",          "if",
                                "then",         "else",
                                "contains",     "minContains",
                                "maxContains",  "dependentRequired",
                                "dependencies", "dependentSchemas",
                                "$dynamicRef",  "$recursiveRef"};

constexpr const char* kByteEscapes = R"(\xHH and \u00HH are not supported; put the characters themselves)";

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

bool may_be(const Json& schema, const Json& type) {
  if (!schema.contains("type")) return true;
  const Json& types = schema["type"];
  return types == type || (types.is_array() && std::find(types.begin(), types.end(), type) != types.end());
}

// Whether `name` is there and lets properties of other names come.
bool opens(const Json& schema, const char* name) {
  return schema.contains(name) && schema[name] != Json(false);
}

void check_required(const Json& schema, const std::string& where) {
  if (!schema.contains("required")) return;
  if (!schema["required"].is_array()) refuse(where, "`required`: expected a list");
  std::unordered_set<std::string_view> declared;
  if (schema.contains("properties") && schema["properties"].is_object())
    for (const auto& [name, child] : schema["properties"].items()) declared.insert(name);
  for (const Json& name : schema["required"])
    if (!name.is_string() || !declared.contains(name.get_ref<const std::string&>()))
      refuse(where, cat("`required`: ", dump_json(name), " is not in `properties`, which is not supported"));
}

// Whether the grammar makes nothing but strings of it.
bool makes_strings(const Json& schema) {
  const auto is_string = [](const Json& value) { return value.is_string(); };
  if (!schema.is_object()) return false;
  const char* const alone = first_of(schema, kAlone);
  if (alone == nullptr) return !schema.contains("type") || schema["type"] == Json("string");
  if (std::string_view(alone) == "const") return is_string(schema["const"]);
  return std::string_view(alone) == "enum" && schema["enum"].is_array() &&
         std::all_of(schema["enum"].begin(), schema["enum"].end(), is_string);
}

void check_patterns(const Json& patterns, const std::string& where) {
  if (!patterns.is_object()) refuse(where, "`patternProperties`: expected an object");
  if (patterns.size() > 1)  // a name may match several
    refuse(where, "`patternProperties`: more than one pattern is not supported");
  for (const auto& [pattern, child] : patterns.items())
    if (has_byte_escapes(pattern)) refuse(where, cat("`patternProperties`: ", kByteEscapes));
}

// Other names than these are told from them by their printable ASCII characters as they are.
void check_plain_names(const Json& properties, const std::string& where) {
  const auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  for (const auto& [name, child] : properties.items())
    if (!std::all_of(name.begin(), name.end(), plain))
      refuse(where,
             cat("a name of `properties` that is not plain printable ASCII beside `additionalProperties`: ",
                 dump_json(Json(name))));
}

void check_object(const Json& schema, const std::string& where) {
  const auto not_together = [&](const char* one, const char* other) {
    if (schema.contains(one) && schema.contains(other))
      refuse(where, cat("`", one, "` beside `", other, "` is not supported"));
  };
  check_required(schema, where);
  not_together("propertyNames", "properties");
  not_together("patternProperties", "properties");
  not_together("propertyNames", "patternProperties");
  if (schema.contains("propertyNames") && !makes_strings(schema["propertyNames"]))
    refuse(where, "`propertyNames`: expected a schema of strings alone");
  if (schema.contains("patternProperties")) check_patterns(schema["patternProperties"], where);
  bool open = schema.contains("propertyNames") || schema.contains("patternProperties");
  for (const char* const others : {"additionalProperties", "unevaluatedProperties"}) {
    if (!schema.contains(others)) continue;
    if (opens(schema, others)) {
      not_together("patternProperties", others);
      if (schema.contains("properties")) check_plain_names(schema["properties"], where);
      open = true;
    } else {
      not_together("propertyNames", others);
    }
  }
  // The same name may come twice where the grammar does not say which ones come.
  if (open && schema.contains("minProperties") && schema["minProperties"] > Json(1))
    refuse(
        where,
        cat("`minProperties` of 2 or more beside other names than those of `properties` is not supported"));
}

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}

  void run() {
    check(root_, "");
    while (!referred_.empty()) {
      const auto [schema, where] = std::move(referred_.back());
      referred_.pop_back();
      check(*schema, where);
    }
  }

 private:
  void check(const Json& schema, const std::string& where) {
    if (!checked_.insert(&schema).second || schema.is_boolean()) return;
    if (!schema.is_object()) refuse(where, "expected an object, true or false");
    check_keywords(schema, where);
    if (const char* const alone = first_of(schema, kAlone)) {
      check_alone(schema, alone, where);
    } else if (!schema.contains("type")) {
      check_tells_its_type(schema, where);
    }
    if (may_be(schema, "object")) check_object(schema, where);
    if (schema.contains("$ref") && schema["$ref"].is_string()) {
      const auto& reference = schema["$ref"].get_ref<const std::string&>();
      if (const Json* const target = referred_to(root_, reference)) referred_.emplace_back(target, reference);
    }
    check_below(schema, where);
  }

  static void check_keywords(const Json& schema, const std::string& where) {
    if (const char* const name = first_of(schema, kUnsupported))
      refuse(where, cat("`", name, "` is not supported"));
    if (schema.contains("uniqueItems") && schema["uniqueItems"] != Json(false))
      refuse(where, "`uniqueItems` is not supported");
    if (schema.contains("type") && schema["type"].is_array() && schema["type"].empty())
      refuse(where, "`type`: expected at least one");
    if (!schema.contains("pattern")) return;
    if (schema["pattern"].is_string() && has_byte_escapes(schema["pattern"].get_ref<const std::string&>()))
      refuse(where, cat("`pattern`: ", kByteEscapes));
    if (schema.contains("format") && may_be(schema, "string"))
      refuse(where, "`pattern` beside `format` is not supported");
  }

  // Without a type, only these say which one is meant.
  static void check_tells_its_type(const Json& schema, const std::string& where) {
    static constexpr Names kTelling = {"properties", "additionalProperties", "unevaluatedProperties",
                                       "items",      "prefixItems",          "unevaluatedItems"};
    if (first_of(schema, kTelling) != nullptr) return;
    for (const Names names : {kOfObjects, kOfArrays, kOfScalars})
      if (const char* const name = first_of(schema, names))
        refuse(where, cat("`", name, "` without a `type`"));
  }

  void check_below(const Json& schema, const std::string& where) {
    const auto below = [&](const Json& child, const std::string& name) {
      check(child, cat(where, "/", name));
    };
    for (const char* const name : kByName)
      if (schema.contains(name)) {
        if (!schema[name].is_object()) refuse(where, cat("`", name, "`: expected an object"));
        for (const auto& [key, child] : schema[name].items()) below(child, cat(name, "/", key));
      }
    for (const char* const name : kListed)
      if (schema.contains(name)) {
        if (!schema[name].is_array() || schema[name].empty())
          refuse(where, cat("`", name, "`: expected a list of schemas"));
        for (const Json& child : schema[name]) below(child, name);
      }
    for (const char* const name : kSingle)
      if (schema.contains(name)) below(schema[name], name);
  }

  const Json& root_;
  std::unordered_set<const Json*> checked_;
  std::vector<std::pair<const Json*, std::string>> referred_;
};

}  // namespace

void check_schema(std::string_view schema) {
  const Json root = parse_json(schema, "JSON schema", 48);
  Checker(root).run();
}

}  // namespace asynct
