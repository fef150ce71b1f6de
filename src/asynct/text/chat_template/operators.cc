#include "asynct/text/chat_template/operators.h"

#include <cmath>

#include "asynct/text/chat_template/python_names.h"

namespace asynct::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

std::string_view symbol(BinaryOp op) { return kSymbols[static_cast<std::size_t>(op)]; }

[[noreturn]] void no_operator(BinaryOp op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b})
    if (const auto* hole = value->as<Undefined>()) fail(*hole->why);
  fail("no operator ", symbol(op), " for ", type_name(a), " and ", type_name(b));
}

[[noreturn]] void overflow(BinaryOp op) { fail("the result of ", symbol(op), " does not fit 64 bits"); }

/// Python rounds towards minus infinity.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::int64_t modulo(std::int64_t a, std::int64_t b) {
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("division by zero");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? std::int64_t{1} : base;
  if (base == -1) return exponent % 2 == 0 ? std::int64_t{1} : std::int64_t{-1};
  std::int64_t power = 1;
  for (; exponent > 0; --exponent)  // at most 64 rounds, as |base| > 1
    if (__builtin_mul_overflow(power, base, &power)) overflow(BinaryOp::kPower);
  return power;
}

Value integer_arithmetic(BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow(op);
      return result;
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow(op);
      return result;
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow(op);
      return result;
    case BinaryOp::kPower:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) fail("division by zero");
  if (op == BinaryOp::kDivide)
    return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
  if (b == -1) {  // where the machine's division may overflow
    if (op == BinaryOp::kModulo) return std::int64_t{0};
    return integer_arithmetic(BinaryOp::kSubtract, 0, a);
  }
  return op == BinaryOp::kModulo ? modulo(a, b) : floor_divide(a, b);
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_floor_divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value float_arithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSubtract:
      return a - b;
    case BinaryOp::kMultiply:
      return a * b;
    case BinaryOp::kPower: {
      if (a == 0 && b < 0) fail("division by zero");
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
        fail("the result of ** is complex");
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) fail("the result of ** is too large");
      return power;
    }
    default:
      break;
  }
  if (b == 0) fail("division by zero");
  if (op == BinaryOp::kDivide) return a / b;
  return op == BinaryOp::kModulo ? float_modulo(a, b) : float_floor_divide(a, b);
}

std::optional<double> as_double(const Value& value) {
  if (const auto integer = value.integer()) return static_cast<double>(*integer);
  if (const auto* number = value.as<double>()) return *number;
  return std::nullopt;
}

Value add_strings(Runtime& runtime, const String& a, const String& b) {
  const bool markup = a.markup || b.markup;
  const auto part = [&](const String& text) {
    return markup && !text.markup ? escape_html(text.text) : text.text;
  };
  runtime.allocate(a.text.size() + b.text.size());
  return runtime.string(part(a) + part(b), markup);
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  const auto check = [&](std::size_t size) {
    if (size > 0 && times > runtime.options().limits.allocated_bytes / size)
      fail("the result of * is too large");
    runtime.allocate(times * size);
  };
  if (const String* text = value.string()) {
    check(text->text.size());
    std::string out;
    out.reserve(times * text->text.size());
    for (std::size_t i = 0; i < times && !text->text.empty(); ++i) out += text->text;
    return runtime.string(std::move(out), text->markup);
  }
  const Sequence& sequence = *value.sequence();
  check(sequence.items.size() * sizeof(Value));
  std::vector<Value> out;
  for (std::size_t i = 0; i < times && !sequence.items.empty(); ++i)
    out.insert(out.end(), sequence.items.begin(), sequence.items.end());
  return sequence.is_tuple ? runtime.tuple(std::move(out)) : runtime.list(std::move(out));
}

bool repeatable(const Value& value) { return value.string() != nullptr || value.sequence() != nullptr; }

}  // namespace

Value arithmetic(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  const auto left = a.integer();
  const auto right = b.integer();
  if (left.has_value() && right.has_value()) return integer_arithmetic(op, *left, *right);
  const auto left_number = as_double(a);
  const auto right_number = as_double(b);
  if (left_number.has_value() && right_number.has_value())
    return float_arithmetic(op, *left_number, *right_number);
  if (op == BinaryOp::kMultiply && repeatable(a) && right.has_value()) return repeat(runtime, a, *right);
  if (op == BinaryOp::kMultiply && repeatable(b) && left.has_value()) return repeat(runtime, b, *left);
  if (op == BinaryOp::kAdd) {
    if (a.string() != nullptr && b.string() != nullptr) return add_strings(runtime, *a.string(), *b.string());
    const Sequence* x = a.sequence();
    const Sequence* y = b.sequence();
    if (x != nullptr && y != nullptr && x->is_tuple == y->is_tuple) {
      runtime.allocate((x->items.size() + y->items.size()) * sizeof(Value));
      std::vector<Value> items = x->items;
      items.insert(items.end(), y->items.begin(), y->items.end());
      return x->is_tuple ? runtime.tuple(std::move(items)) : runtime.list(std::move(items));
    }
  }
  if (op == BinaryOp::kModulo && a.string() != nullptr) fail("formatting of strings by % is not supported");
  no_operator(op, a, b);
}

Value negate(const Value& value) {
  if (const auto integer = value.integer()) return integer_arithmetic(BinaryOp::kSubtract, 0, *integer);
  if (const auto* number = value.as<double>()) return -*number;
  no_operator(BinaryOp::kSubtract, value, value);
}

Value plus(const Value& value) {
  if (const auto integer = value.integer()) return *integer;
  if (value.as<double>() != nullptr) return value;
  no_operator(BinaryOp::kAdd, value, value);
}

bool contains(Runtime& runtime, const Value& container, const Value& element) {
  if (const String* text = container.string()) {
    if (element.string() == nullptr) fail("in: ", type_name(element), " cannot be part of a string");
    runtime.scan(text->text.size());
    return find_bytes(text->text, element.string()->text) != std::string::npos;
  }
  const auto* view = container.as<View>();
  if (container.dict() != nullptr || (view != nullptr && view->part == View::kKeys)) {
    check_hashable(element);
    return (view != nullptr ? view->dict.get() : container.dict())->find(element) != nullptr;
  }
  const auto iterator = runtime.iterate(container);
  while (const auto item = iterator->next())
    if (equal(runtime, *item, element)) return true;
  return false;
}

bool compare(Runtime& runtime, CompareOp op, const Value& a, const Value& b) {
  const auto is_nan = [](const Value& v) { return v.as<double>() != nullptr && std::isnan(*v.as<double>()); };
  switch (op) {
    case CompareOp::kEqual:
      return equal(runtime, a, b);
    case CompareOp::kNotEqual:
      return !equal(runtime, a, b);
    case CompareOp::kIn:
      return contains(runtime, b, a);
    case CompareOp::kNotIn:
      return !contains(runtime, b, a);
    case CompareOp::kLess:
      return less(runtime, a, b);
    case CompareOp::kGreater:
      return less(runtime, b, a);
    case CompareOp::kLessEqual:
      return !less(runtime, b, a) && !is_nan(a) && !is_nan(b);
    case CompareOp::kGreaterEqual:
      return !less(runtime, a, b) && !is_nan(a) && !is_nan(b);
  }
  return false;
}

}  // namespace asynct::jinja
