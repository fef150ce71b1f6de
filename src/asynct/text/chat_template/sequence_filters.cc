#include "asynct/text/chat_template/sequence_filters.h"

#include <algorithm>

#include "asynct/text/chat_template/access.h"
#include "asynct/text/chat_template/filters.h"
#include "asynct/text/chat_template/operators.h"
#include "asynct/text/chat_template/python_names.h"

namespace asynct::jinja {
namespace {

Value attribute_or_none(const Parameters& p, std::size_t i) { return p[i] != nullptr ? *p[i] : Value(); }

/// What comparisons see of a value: strings in lower case unless case matters.
Value folded(Runtime& runtime, Value value, bool case_sensitive) {
  const String* text = value.string();
  if (case_sensitive || text == nullptr) return value;
  runtime.allocate(text->text.size() * 4);
  return runtime.string(lower(text->text), text->markup);
}

/// Depth of a generator that holds all of these.
int deeper(const std::shared_ptr<Iterator>& source, const Value& other = {}) {
  return std::max(source->depth, depth_of(other)) + 1;
}

int depth_of(const Arguments& arguments) {
  int depth = 0;
  for (const Value& value : arguments.positional) depth = std::max(depth, jinja::depth_of(value));
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, jinja::depth_of(value));
  return depth;
}

/// reversed(value), nothing for what Python cannot reverse.
std::optional<std::vector<Value>> reversed(Runtime& runtime, const Value& value) {
  if (value.as<std::shared_ptr<Iterator>>() != nullptr) return std::nullopt;
  std::vector<Value> all = runtime.elements(value);
  std::reverse(all.begin(), all.end());
  return all;
}

Value generator_of(Runtime& runtime, std::vector<Value> items) {
  const Value held = runtime.list(std::move(items));
  return runtime.iterator(
      [held, i = std::size_t{0}]() mutable -> std::optional<Value> {
        if (i == held.sequence()->items.size()) return std::nullopt;
        return held.sequence()->items[i++];
      },
      jinja::depth_of(held));
}

}  // namespace

Value count_elements(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("length", std::move(arguments), {});
  const auto length = runtime.length(value);
  if (!length.has_value()) fail("length: ", type_name(value), " has no length");
  return *length;
}

Value first(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("first", std::move(arguments), {});
  auto element = runtime.iterate(value)->next();
  return element.has_value() ? *std::move(element) : undefined("no first item, the sequence is empty");
}

Value last(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("last", std::move(arguments), {});
  const auto all = reversed(runtime, value);
  if (!all.has_value()) fail("last: ", type_name(value), " cannot be reversed");
  return all->empty() ? undefined("no last item, the sequence is empty") : all->front();
}

Value list(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("list", std::move(arguments), {});
  return runtime.list(runtime.elements(value));
}

Value reverse(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("reverse", std::move(arguments), {});
  if (const String* text = value.string()) {
    runtime.allocate(text->text.size() * sizeof(std::string_view));
    std::string out;
    const std::vector<std::string_view> all = characters(text->text);
    for (auto c = all.rbegin(); c != all.rend(); ++c) out += *c;
    return runtime.string(std::move(out), text->markup);
  }
  if (auto all = reversed(runtime, value)) return generator_of(runtime, *std::move(all));
  std::vector<Value> all = runtime.elements(value);
  std::reverse(all.begin(), all.end());
  return runtime.list(std::move(all));
}

Value join(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("join", std::move(arguments), {"d", "attribute"});
  const std::string separator = p[0] != nullptr ? to_str(runtime, *p[0]) : "";
  const AttributePath path(runtime, attribute_or_none(p, 1));
  const auto source = runtime.iterate(value);
  std::string out;
  bool is_first = true;
  while (const auto item = source->next()) {
    runtime.step();
    runtime.allocate(separator.size());
    if (!is_first) out += separator;
    append_str(runtime, out, path.get(runtime, *item));
    is_first = false;
  }
  // A Markup separator makes the result one, and escapes the rest; no chat template has one.
  if (p[0] != nullptr && p[0]->string() != nullptr && p[0]->string()->markup)
    fail("join: a separator that went through safe or escape is not supported");
  return runtime.string(std::move(out));
}

Value items(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("items", std::move(arguments), {});
  if (value.is_undefined()) return generator_of(runtime, {});
  const auto* dict = value.as<std::shared_ptr<const Dict>>();
  if (dict == nullptr)  // Python's generator fails when it is read
    return runtime.iterator(
        [what = type_name(value)]() -> std::optional<Value> { fail("items: ", what, " has none"); }, 1);
  return generator_of(runtime, runtime.elements(View{*dict, View::kItems}));
}

Value dictsort(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  const std::string by = p[1] != nullptr ? p.text(1) : "key";
  if (by != "key" && by != "value") fail("dictsort: by \"", by, "\", expected \"key\" or \"value\"");
  const Dict* dict = value.dict();
  if (dict == nullptr) fail("dictsort: expected a dict, found ", type_name(value));
  std::vector<std::pair<Value, Value>> keyed;  // what is compared, and the item
  for (const auto& [key, element] : dict->items())
    keyed.emplace_back(folded(runtime, by == "key" ? key : element, p.truth_of(0)),
                       runtime.tuple({key, element}));
  const bool descending = p.truth_of(2);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& item : keyed) out.push_back(std::move(item.second));
  return runtime.list(std::move(out));
}

Value sort(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (p[2] != nullptr && p[2]->string() != nullptr) {
    for (const std::string_view part : split(p.text(2), ",", -1, false))
      paths.emplace_back(runtime, runtime.string(std::string(part)));
  } else {
    paths.emplace_back(runtime, attribute_or_none(p, 2));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : runtime.elements(value)) {
    std::vector<Value> key;
    for (const AttributePath& path : paths)
      key.push_back(folded(runtime, path.get(runtime, item), p.truth_of(1)));
    keyed.emplace_back(runtime.list(std::move(key)), std::move(item));
  }
  const bool descending = p.truth_of(0);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& item : keyed) out.push_back(std::move(item.second));
  return runtime.list(std::move(out));
}

namespace {

Value extreme(Runtime& runtime, const Value& value, Arguments arguments, bool largest) {
  const Parameters p(largest ? "max" : "min", std::move(arguments), {"case_sensitive", "attribute"});
  const AttributePath path(runtime, attribute_or_none(p, 1));
  Value best = undefined("no item, the sequence is empty");
  std::optional<Value> best_key;
  const auto source = runtime.iterate(value);
  while (auto item = source->next()) {
    Value key = folded(runtime, path.get(runtime, *item), p.truth_of(0));
    if (best_key.has_value() && !(largest ? less(runtime, *best_key, key) : less(runtime, key, *best_key)))
      continue;
    best = *std::move(item);
    best_key = std::move(key);
  }
  return best;
}

}  // namespace

Value minimum(Runtime& runtime, const Value& value, Arguments arguments) {
  return extreme(runtime, value, std::move(arguments), false);
}

Value maximum(Runtime& runtime, const Value& value, Arguments arguments) {
  return extreme(runtime, value, std::move(arguments), true);
}

Value sum(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("sum", std::move(arguments), {"attribute", "start"});
  const AttributePath path(runtime, attribute_or_none(p, 0));
  Value total = p[1] != nullptr ? *p[1] : Value(std::int64_t{0});
  if (total.string() != nullptr) fail("sum: strings have no sum");
  const auto source = runtime.iterate(value);
  while (const auto item = source->next()) {
    runtime.step();
    total = arithmetic(runtime, BinaryOp::kAdd, total, path.get(runtime, *item));
  }
  return total;
}

Value unique(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("unique", std::move(arguments), {"case_sensitive", "attribute"});
  const auto source = runtime.iterate(value);
  const AttributePath path(runtime, attribute_or_none(p, 1));
  const bool case_sensitive = p.truth_of(0);
  return runtime.iterator(
      [&runtime, source, path, case_sensitive,
       seen = std::vector<Value>()]() mutable -> std::optional<Value> {
        while (auto item = source->next()) {
          Value key = folded(runtime, path.get(runtime, *item), case_sensitive);
          check_hashable(key);
          const bool known = std::any_of(seen.begin(), seen.end(),
                                         [&](const Value& other) { return equal(runtime, other, key); });
          if (known) continue;
          runtime.allocate(sizeof(Value));
          seen.push_back(std::move(key));
          return item;
        }
        return std::nullopt;
      },
      deeper(source));
}

Value batch(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("batch", std::move(arguments), {"linecount", "fill_with"}, 1);
  const std::int64_t count = p.integer(0, 0);
  const Value fill = attribute_or_none(p, 1);
  const auto source = runtime.iterate(value);
  // A batch is given once an element comes that does not fit into it, or at the end.
  return runtime.iterator(
      [&runtime, source, count, fill, row = std::vector<Value>(),
       done = false]() mutable -> std::optional<Value> {
        while (!done) {
          auto item = source->next();
          const bool full = static_cast<std::int64_t>(row.size()) == count;
          done = !item.has_value();
          if (done && row.empty()) return std::nullopt;
          std::vector<Value> next;
          if (item.has_value()) (full ? next : row).push_back(*std::move(item));
          runtime.allocate(sizeof(Value));
          if (!full && !done) continue;
          while (done && !fill.is_none() && static_cast<std::int64_t>(row.size()) < count) {
            runtime.allocate(sizeof(Value));
            row.push_back(fill);
          }
          return runtime.list(std::exchange(row, std::move(next)));
        }
        return std::nullopt;
      },
      deeper(source, fill));
}

namespace {

/// value if test, for each element of a true `source`; nothing for a false one, whatever the arguments.
/// held_depth: of what `keep` holds.
Value generator_unless_false(Runtime& runtime, const Value& source, int held_depth,
                             std::function<std::optional<Value>(const Value& item)> keep) {
  if (!truth(source)) return generator_of(runtime, {});
  // Errors of what cannot be iterated come when it is read.
  return runtime.iterator(
      [&runtime, source, keep = std::move(keep),
       input = std::shared_ptr<Iterator>()]() mutable -> std::optional<Value> {
        if (input == nullptr) input = runtime.iterate(source);
        while (const auto item = input->next()) {
          runtime.step();
          if (auto out = keep(*item)) return out;
        }
        return std::nullopt;
      },
      std::max(jinja::depth_of(source), held_depth) + 1);
}

Value keep_or_drop(Runtime& runtime, const Value& value, Arguments arguments, std::string_view name,
                   bool by_attribute, bool keep) {
  if (!truth(value)) return generator_of(runtime, {});
  const std::size_t off = by_attribute ? 1 : 0;
  if (arguments.positional.size() < off) fail(name, ": the name of an attribute is missing");
  const AttributePath path(runtime, by_attribute ? arguments.positional[0] : Value());
  const Test* test = nullptr;
  if (arguments.positional.size() > off) {
    const std::string& test_name = expect_text(arguments.positional[off], name);
    test = find_test(test_name);
    if (test == nullptr) fail(name, ": there is no test \"", test_name, "\"");
  }
  Arguments rest;
  if (test != nullptr) {
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(off + 1),
                           arguments.positional.end());
    rest.named = arguments.named;
  }
  return generator_unless_false(
      runtime, value, depth_of(rest), [&runtime, path, test, rest, keep](const Value& item) {
        const Value seen = path.get(runtime, item);
        const bool passes = test != nullptr ? test->apply(runtime, seen, rest) : truth(seen);
        return passes == keep ? std::optional(item) : std::nullopt;
      });
}

}  // namespace

Value select(Runtime& runtime, const Value& value, Arguments arguments) {
  return keep_or_drop(runtime, value, std::move(arguments), "select", false, true);
}
Value reject(Runtime& runtime, const Value& value, Arguments arguments) {
  return keep_or_drop(runtime, value, std::move(arguments), "reject", false, false);
}
Value selectattr(Runtime& runtime, const Value& value, Arguments arguments) {
  return keep_or_drop(runtime, value, std::move(arguments), "selectattr", true, true);
}
Value rejectattr(Runtime& runtime, const Value& value, Arguments arguments) {
  return keep_or_drop(runtime, value, std::move(arguments), "rejectattr", true, false);
}

Value map(Runtime& runtime, const Value& value, Arguments arguments) {
  if (!truth(value)) return generator_of(runtime, {});
  if (arguments.positional.empty()) {
    const Parameters p("map", std::move(arguments), {"attribute", "default"}, 1);
    const AttributePath path(runtime, *p[0]);
    const Value otherwise = attribute_or_none(p, 1);
    return generator_unless_false(
        runtime, value, jinja::depth_of(otherwise), [&runtime, path, otherwise](const Value& item) {
          return std::optional(path.get(runtime, item, otherwise.is_none() ? nullptr : &otherwise));
        });
  }
  const std::string& name = expect_text(arguments.positional.front(), "map");
  const Filter* filter = find_filter(name);
  if (filter == nullptr) fail("map: there is no filter \"", name, "\"");
  arguments.positional.erase(arguments.positional.begin());
  const int held_depth = depth_of(arguments);
  return generator_unless_false(runtime, value, held_depth,
                                [&runtime, filter, rest = std::move(arguments)](const Value& item) {
                                  return std::optional(filter->apply(runtime, item, rest));
                                });
}

}  // namespace asynct::jinja
