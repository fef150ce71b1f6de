#include <algorithm>

#include "asynct/text/chat_template/filters.h"
#include "asynct/text/chat_template/operators.h"
#include "asynct/text/chat_template/python_names.h"

namespace asynct::jinja {
namespace {

/// A test of the value alone.
template <bool (*kHolds)(const Value&)>
bool plain(Runtime&, const Value& value, Arguments arguments) {
  const Parameters p("a test", std::move(arguments), {});
  return kHolds(value);
}

/// A test against one other value.
template <CompareOp kOp>
bool against(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("a test", std::move(arguments), {"other"}, 1);
  return compare(runtime, kOp, value, *p[0]);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.as<bool>() != nullptr; }
bool is_true(const Value& v) { return is_boolean(v) && *v.as<bool>(); }
bool is_false(const Value& v) { return is_boolean(v) && !*v.as<bool>(); }
bool is_integer(const Value& v) { return v.as<std::int64_t>() != nullptr; }
bool is_float(const Value& v) { return v.as<double>() != nullptr; }
bool is_number(const Value& v) { return is_boolean(v) || is_integer(v) || is_float(v); }
bool is_string(const Value& v) { return v.string() != nullptr; }
bool is_mapping(const Value& v) { return v.dict() != nullptr; }
bool is_sequence(const Value& v) {
  return v.is_undefined() || v.string() != nullptr || v.sequence() != nullptr || v.dict() != nullptr ||
         v.as<Range>() != nullptr;
}
bool is_iterable(const Value& v) {
  return is_sequence(v) || v.as<View>() != nullptr || v.as<std::shared_ptr<Iterator>>() != nullptr ||
         v.as<std::shared_ptr<Loop>>() != nullptr;
}
bool is_callable(const Value& v) {
  return v.is_undefined() || v.as<Method>() != nullptr || v.as<Global>() != nullptr ||
         v.as<std::shared_ptr<const Macro>>() != nullptr || v.as<std::shared_ptr<Loop>>() != nullptr;
}

template <bool (*kHolds)(std::string_view)>
bool of_text(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("a test", std::move(arguments), {});
  const std::string text = to_str(runtime, value);
  runtime.allocate(text.size() * 4);  // decoded
  return kHolds(text);
}

bool has_remainder(Runtime& runtime, const Value& value, const Value& divisor, std::int64_t remainder) {
  return equal(runtime, arithmetic(runtime, BinaryOp::kModulo, value, divisor), remainder);
}

template <std::int64_t kRemainder>
bool modulo_two(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("a test", std::move(arguments), {});
  return has_remainder(runtime, value, std::int64_t{2}, kRemainder);
}

bool divisible(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("divisibleby", std::move(arguments), {"num"}, 1);
  return has_remainder(runtime, value, *p[0], 0);
}

constexpr Test kTests[] = {
    {"!=", against<CompareOp::kNotEqual>},
    {"<", against<CompareOp::kLess>},
    {"<=", against<CompareOp::kLessEqual>},
    {"==", against<CompareOp::kEqual>},
    {">", against<CompareOp::kGreater>},
    {">=", against<CompareOp::kGreaterEqual>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisible},
    {"eq", against<CompareOp::kEqual>},
    {"equalto", against<CompareOp::kEqual>},
    {"even", modulo_two<0>},
    {"false", plain<is_false>},
    {"float", plain<is_float>},
    {"ge", against<CompareOp::kGreaterEqual>},
    {"greaterthan", against<CompareOp::kGreater>},
    {"gt", against<CompareOp::kGreater>},
    {"in", against<CompareOp::kIn>},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", against<CompareOp::kLessEqual>},
    {"lessthan", against<CompareOp::kLess>},
    {"lower", of_text<is_lower>},
    {"lt", against<CompareOp::kLess>},
    {"mapping", plain<is_mapping>},
    {"ne", against<CompareOp::kNotEqual>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", modulo_two<1>},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", of_text<is_upper>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const Test& t) { return t.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace asynct::jinja
