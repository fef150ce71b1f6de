#include "asynct/text/chat_template/globals.h"

#include <ctime>

namespace asynct::jinja {

Value make_range(Runtime& runtime, Arguments arguments) {
  const Parameters p("range", std::move(arguments), {"start", "stop", "step"}, 1,
                     Parameters::Named::kRefused);
  Range range;
  range.start = p[1] != nullptr ? p.integer(0, 0) : 0;
  range.stop = p[1] != nullptr ? p.integer(1, 0) : p.integer(0, 0);
  range.step = p.integer(2, 1);
  if (range.step == 0) fail("range: the step is 0");
  const bool empty = range.step > 0 ? range.start >= range.stop : range.start <= range.stop;
  if (empty) return range;
  // Differences and negated steps fit 64 bits without a sign.
  const auto start = static_cast<std::uint64_t>(range.start);
  const auto stop = static_cast<std::uint64_t>(range.stop);
  const auto step = static_cast<std::uint64_t>(range.step);
  const std::uint64_t length =
      range.step > 0 ? (stop - start - 1) / step + 1 : (start - stop - 1) / (0 - step) + 1;
  if (length > runtime.options().limits.range_length)
    fail("range: ", length, " elements, at most ", runtime.options().limits.range_length, " are allowed");
  range.length = static_cast<std::int64_t>(length);
  return range;
}

Value make_namespace(Runtime& runtime, Arguments arguments) {
  const auto space = runtime.make_namespace();
  const auto set = [&](const std::string& name, Value value) {
    runtime.allocate(sizeof(Value) + name.size());
    if (Value* known = space->find(name)) {
      *known = std::move(value);
    } else {
      space->attributes.emplace_back(name, std::move(value));
    }
  };
  if (arguments.positional.size() > 1) fail("namespace: more than one argument without a name");
  for (const Value& argument : arguments.positional) {
    const Dict* dict = argument.dict();
    if (dict == nullptr) fail("namespace: expected a dict, found ", type_name(argument));
    for (const auto& [key, value] : dict->items()) set(expect_text(key, "namespace"), value);
  }
  for (const auto& [name, value] : arguments.named) set(std::string(name), value);
  return space;
}

Value format_now(Runtime& runtime, Arguments arguments) {
  const Parameters p("strftime_now", std::move(arguments), {"format"}, 1);
  const std::string format = p.text(0) + "!";  // never empty, so that 0 means too small
  if (format.find('\0') != std::string::npos) fail("strftime_now: the format holds a NUL");
  const std::time_t now = runtime.options().clock();
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) fail("strftime_now: no local time for ", now);
  std::string out(256 + 16 * format.size(), '\0');
  runtime.allocate(out.size());
  const std::size_t size = std::strftime(out.data(), out.size(), format.c_str(), &local);
  if (size == 0) fail("strftime_now: the result is too long");
  out.resize(size - 1);
  return runtime.string(std::move(out));
}

}  // namespace asynct::jinja
