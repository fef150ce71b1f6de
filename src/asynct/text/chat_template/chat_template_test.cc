#include "asynct/text/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"

namespace asynct {
namespace {

constexpr const char* kGolden = "tests/golden/chat_templates";

std::string render(std::string_view source, const Json& variables = Json::object(),
                   ChatTemplateOptions options = {}) {
  return ChatTemplate(source, "t", std::move(options)).render(variables);
}

template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string load_error(std::string_view source) {
  return message_of([&] { ChatTemplate(source, "t"); });
}

std::string render_error(std::string_view source, const Json& variables = Json::object(),
                         ChatTemplateOptions options = {}) {
  const ChatTemplate loaded(source, "t", std::move(options));  // must not fail
  return message_of([&] { loaded.render(variables); });
}

TEST(ChatTemplateGolden, RendersAsJinja2) {
  setenv("TZ", "UTC", 1);
  const Json golden = parse_json(read_file(std::string(kGolden) + ".json", 8 << 20), "goldens");
  ChatTemplateOptions options;
  options.clock = [now = golden["now"].get<std::time_t>()] { return now; };
  std::size_t rendered = 0;
  for (const Json& one : golden["cases"]) {
    const std::string source =
        one.contains("template")
            ? one["template"].get<std::string>()
            : read_file(std::string(kGolden) + "/" + one["file"].get<std::string>() + ".jinja", 1 << 20);
    const Json& variables = one.contains("variables") ? one["variables"] : golden["variables"];
    bool loaded = false;
    try {
      const ChatTemplate chat_template(source, "t", options);
      loaded = true;
      const std::string text = chat_template.render(variables);
      EXPECT_EQ(text, one.value("text", "an error")) << one["name"] << ": " << source;
      ++rendered;
    } catch (const Error& error) {
      // What jinja2 refuses to compile must not load; refusing early what it refuses late is fine.
      EXPECT_TRUE(one.contains("error")) << one["name"] << ": " << source << ": " << error.what();
      EXPECT_FALSE(loaded && one.value("at", "") == "load") << one["name"] << ": " << source;
    }
  }
  EXPECT_GT(rendered, 400U);
}

struct Small {
  const char* source;
  const char* variables;
  const char* expected;
};

class ChatTemplateTable : public testing::TestWithParam<Small> {};

TEST_P(ChatTemplateTable, Renders) {
  EXPECT_EQ(render(GetParam().source, parse_json(GetParam().variables, "variables")), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Small, ChatTemplateTable,
    testing::Values(
        Small{"", "{}", ""}, Small{"text\n", "{}", "text"}, Small{"{{ x }}", R"({"x": "<é>"})", "<é>"},
        Small{"{{ nope }}|{{ x.nope }}", R"({"x": {}})", "|"},
        Small{"{% if a %}\n x\n{% endif %}\n", R"({"a": 1})", " x\n"},
        Small{"{{ x }}", R"({"x": [1, 2.0, null, true, "it's", {"a": "b"}]})",
              "[1, 2.0, None, True, \"it's\", {'a': 'b'}]"},
        Small{"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }}", "{}", "-4 2 3.5 64"},
        Small{"{{ x | tojson }}", R"({"x": {"b": 1, "a": "é\n"}})", R"({"b": 1, "a": "é\n"})"},
        Small{"{% for m in ms %}{{ loop.index }}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}",
              R"({"ms": [{"role": "user"}, {"role": "assistant"}]})", "1user,2assistant"},
        Small{"{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ "
              "ns.n }}",
              "{}", "6"},
        Small{"{{ range }}", R"({"range": 5})", "5"}));

TEST(ChatTemplate, VariablesComeFromTheCallerAndMayHideFunctions) {
  EXPECT_EQ(render("{{ messages[0]['content'] }}", {{"messages", {{{"content", "hi"}}}}}), "hi");
  EXPECT_NE(render_error("{{ range(3) }}", {{"range", 1}}).find("an integer cannot be called"),
            std::string::npos);
  EXPECT_NE(message_of([] { render("x", Json::array()); }).find("expected an object"), std::string::npos);
}

TEST(ChatTemplate, IllFormedTextIsReplaced) {
  EXPECT_EQ(render("{{ x }}{{ x | length }}", {{"x", "a\xFF\xC3"}}),
            "a\xEF\xBF\xBD\xEF\xBF\xBD"
            "3");
  EXPECT_NE(load_error("\xFF").find("not UTF-8"), std::string::npos);
}

TEST(ChatTemplate, MessagesOfRaisedErrorsFollowTheName) {
  EXPECT_EQ(render_error("\n\n{{ raise_exception('Roles must alternate: ' ~ 1) }}"),
            "t: Roles must alternate: 1");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(render_error("a\n\n{{ nope.x }}"), "t:3: 'nope' is undefined");
  EXPECT_EQ(render_error("a\n{% if t %}\n{{ 1 + 'a' }}{% endif %}", {{"t", true}}),
            "t:3: no operator + for an integer and a string");
  EXPECT_EQ(load_error("a\n{# x\n\n #}{{ 1 | wordwrap }}"), "t:4: the filter \"wordwrap\" is not supported");
}

TEST(ChatTemplate, RefusesTheRestOfJinjaAtLoad) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% include 'x' %}", "the tag \"include\" is not supported"},
      {"{% extends 'x' %}", "the tag \"extends\" is not supported"},
      {"{% import 'x' as y %}", "the tag \"import\" is not supported"},
      {"{% with a = 1 %}{% endwith %}", "the tag \"with\" is not supported"},
      {"{% block a %}{% endblock %}", "the tag \"block\" is not supported"},
      {"{% call f() %}{% endcall %}", "the tag \"call\" is not supported"},
      {"{% filter upper %}{% endfilter %}", "the tag \"filter\" is not supported"},
      {"{% set x | upper %}a{% endset %}", "filters of a set block are not supported"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops are not supported"},
      {"{{ x | format(1) }}", "the filter \"format\" is not supported"},
      {"{{ x | map('xmlattr') }}", "the filter \"xmlattr\" is not supported"},
      {"{{ x | selectattr('a', 'sameas', 1) }}", "the test \"sameas\" is not supported"},
      {"{{ x is sameas y }}", "the test \"sameas\" is not supported"},
      {"{{ x.format(1) }}", "the method format() is not supported"},
      {"{{ x.encode() }}", "the method encode() is not supported"},
      {"{{ cycler(1) }}", "the function cycler() is not supported"},
      {"{{ '%s' % 1 }}", "formatting of strings by % is not supported"},
      {"{{ f(*x) }}", "arguments by '*' are not supported"},
      {"{{ f(**x) }}", "arguments by '**' are not supported"},
      {"{{ x.__class__ }}", "the attribute __class__ is not supported"},
      {"{{ x[1, 2] }}", "subscripts with a comma are not supported"},
      {"{% macro m() %}{{ caller() }}{% endmacro %}", "the variable caller of macros is not supported"},
      {"{{ é }}", "unexpected character 'é'"},
      {"{{ 99999999999999999999 }}", "does not fit 64 bits"},
      {"{{ '\\ud800' }}", "\\u escape of no character in a string"},
      {"{{ '\\N{DASH}' }}", "escape \\N in a string is not supported"}};
  for (const auto& [source, problem] : cases) {
    const std::string message = load_error(source);
    EXPECT_NE(message.find(problem), std::string::npos) << source << ": " << message;
    EXPECT_EQ(message.substr(0, 5), "t:1: ") << message;
  }
}

TEST(ChatTemplate, RefusesAtRenderWhatOnlyShowsThere) {
  EXPECT_NE(render_error("{{ x % 1 }}", {{"x", "%s"}}).find("formatting of strings by %"), std::string::npos);
  EXPECT_NE(render_error("{{ x['format']() }}", {{"x", "a"}}).find("the method format()"), std::string::npos);
  EXPECT_NE(render_error("{{ [1] | map('abs') }}").find("cannot print a generator"), std::string::npos);
  EXPECT_NE(render_error("{{ [1] | map(x) | list }}", {{"x", "xmlattr"}}).find("no filter \"xmlattr\""),
            std::string::npos);
  EXPECT_NE(render_error("{{ x }}", {{"x", 18446744073709551615ULL}}).find("does not fit 64 bits"),
            std::string::npos);
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}", "{{ 2 ** 63 }}",
        "{{ 4611686018427387904 * 2 }}", "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ (-9223372036854775807 - 1) | abs }}",
        "{{ 1e300 | int }}", "{{ [9223372036854775807, 1] | sum }}", "{{ '9223372036854775808' | int }}"})
    EXPECT_NE(render_error(source).find("64 bits"), std::string::npos) << source;
}

TEST(ChatTemplate, TheSandboxLetsNothingChange) {
  EXPECT_NE(render_error("{{ x.append(1) }}", {{"x", Json::array()}}).find("not safe"), std::string::npos);
  EXPECT_NE(render_error("{{ x.update({}) }}", {{"x", Json::object()}}).find("not safe"), std::string::npos);
}

TEST(ChatTemplate, IntegersDoNotWrapInRangesAndSlices) {
  EXPECT_EQ(render("{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807) | list }}"),
            "[-9223372036854775807, 0]");
  EXPECT_EQ(render("{{ 'abc'[::-9223372036854775807 - 1] }}{{ 'abc'[::9223372036854775807] }}"), "ca");
  EXPECT_EQ(render("{{ [1, 2, 3][-9223372036854775807:9223372036854775807] }}"), "[1, 2, 3]");
  EXPECT_NE(render_error("{{ range(3)[::9223372036854775807][::3] }}").find("64 bits"), std::string::npos);
  EXPECT_NE(render_error("{{ range(-9223372036854775807, 9223372036854775807) }}").find("at most"),
            std::string::npos);
}

TEST(ChatTemplate, DeepNestingIsAnErrorNotAStackOverflow) {
  const auto repeat = [](std::string_view part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  ChatTemplateOptions large;
  large.limits.source_bytes = 64 << 20;
  const auto nested = [&](const char* open, const char* close, int times) {
    return "{{ " + repeat(open, times) + "1" + repeat(close, times) + " }}";
  };
  const std::pair<const char*, const char*> brackets[] = {
      {"(", ")"},           {"[", "]"},    {"{1:", "}"},     {"-", ""},     {"+", ""},
      {"not ", ""},         {"x[", "]"},   {"f(", ")"},      {"x(a=", ")"}, {"x if ", ""},
      {"1 if x else ", ""}, {"x|d(", ")"}, {"x is eq ", ""}, {"x[:", "]"},  {"x is eq(", ")"}};
  for (const auto& [open, close] : brackets) {
    const std::string source = nested(open, close, open == brackets[0].first ? 1000000 : 100000);
    EXPECT_NE(message_of([&] { ChatTemplate(source, "t", large); }).find("deeper"), std::string::npos)
        << open;
  }
  for (const char* part : {".a", "[0]", "()", "|e", " is eq 1|e"}) {
    const std::string source = "{{ x" + repeat(part, 300000) + " }}";
    EXPECT_NE(message_of([&] { ChatTemplate(source, "t", large); }).find("deeper"), std::string::npos)
        << part;
  }
  for (const char* part :
       {"{% if x %}", "{% for x in y %}", "{% macro m() %}", "{% set x %}", "{% generation %}"})
    EXPECT_NE(message_of([&] { ChatTemplate(repeat(part, 100000), "t", large); }).find("deeper"),
              std::string::npos)
        << part;
  for (const char* part : {"{% for ", "{% set "})
    EXPECT_NE(load_error(part + repeat("(", 100000) + "a" + repeat(")", 100000) + " %}").find("deeper"),
              std::string::npos)
        << part;
  // Chains that are no nesting.
  EXPECT_EQ(render("{{ 0" + repeat(" + 1", 10000) + " }}"), "10000");
  EXPECT_EQ(render("{{ ''" + repeat(" ~ 1", 100) + " }}"), repeat("1", 100));
  EXPECT_EQ(render("{% if x %}" + repeat("{% elif x %}", 1000) + "{% else %}e{% endif %}"), "e");
  EXPECT_EQ(render("{{ " + repeat("(", 90) + "1" + repeat(")", 90) + " }}"), "1");
}

TEST(ChatTemplate, DeepValuesAreAnErrorNotAStackOverflow) {
  const char* const deepeners[] = {"{% set ns.x = [ns.x] %}",
                                   "{% set ns.x = {'a': ns.x} %}",
                                   "{% set ns.x = (ns.x, 1) %}",
                                   "{% set ns.x = [1] | map('default', ns.x) %}",
                                   "{% set ns.x = ns.x | list | map('string') %}{% set ns.x = [ns.x] %}",
                                   "{% set ns.x = [[ns.x] | select] %}",
                                   "{% set ns.x = [1] | batch(2, ns.x) %}",
                                   "{% set ns.x = [{'a': ns.x}.items] %}",
                                   "{% for y in [ns.x] %}{% set ns.x = loop %}{% endfor %}",
                                   "{% for y in [ns.x] if true %}{% set ns.x = [loop] %}{% endfor %}"};
  for (const char* deepener : deepeners) {
    const std::string source =
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}" + std::string(deepener) + "{% endfor %}";
    const std::string message = render_error(source);
    EXPECT_NE(message.find("deeper"), std::string::npos) << deepener << ": " << message;
  }
  Json deep = 1;
  for (int i = 0; i < 150; ++i) deep = Json::array({std::move(deep)});
  EXPECT_NE(render_error("{{ x }}", {{"x", deep}}).find("deeper"), std::string::npos);
  EXPECT_EQ(render("{{ y }}", {{"x", deep}, {"y", 1}}), "1");  // not used, not looked at
}

TEST(ChatTemplate, ValuesThatHoldThemselvesAreFreed) {  // leaks show under asan
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.x = ns %}{% set ns.y = [ns, ns.x] %}{{ ns.x.x.x is "
                   "defined }}"),
            "True");
  EXPECT_EQ(render("{% macro m(f) %}{% macro g() %}{{ f }}{% endmacro %}{% set ns.m = g %}{% endmacro %}"
                   "{% set ns = namespace(m=1) %}{% for i in range(2000) %}{{ m(ns.m) }}{% endfor %}"),
            "");
  EXPECT_EQ(
      render(
          "{% set ns = namespace(l=0) %}{% macro m() %}{% set p = ns.l %}{% for x in [1] if true %}"
          "{% set ns.l = loop %}{% endfor %}{% endmacro %}{% for i in range(5000) %}{{ m() }}{% endfor %}"),
      "");
  EXPECT_NE(render_error("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}").find("cannot print"),
            std::string::npos);
}

TEST(ChatTemplate, MacrosThatCallThemselvesEndInAnError) {
  EXPECT_NE(render_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("deeper"),
            std::string::npos);
  EXPECT_NE(
      render_error("{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{% for x in [1] %}{{ f() | trim }}"
                   "{% endfor %}{% endmacro %}{{ f() }}")
          .find("deeper"),
      std::string::npos);
  EXPECT_NE(render_error("{% macro f(x=f()) %}{% endmacro %}{{ f() }}").find("deeper"), std::string::npos);
}

TEST(ChatTemplate, LimitsOnWorkAndMemory) {
  EXPECT_NE(message_of([] { ChatTemplate(std::string((1 << 20) + 1, 'x')); }).find("bytes of template"),
            std::string::npos);
  EXPECT_NE(render_error("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}")
                .find("more than 1000000 steps"),
            std::string::npos);
  const char* const growers[] = {
      "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ "
      "ns.s }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s='xx') %}{% for i in range(64) %}{% set ns.s = ns.s.replace('x', ns.s) %}{% "
      "endfor %}",
      "{% set ns = namespace(s='xx') %}{% for i in range(64) %}{% set ns.s = ns.s | join(ns.s) %}{% endfor "
      "%}",
      "{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
      "{{ 'x' * 9223372036854775807 }}",
      "{{ [1] * 9223372036854775807 }}",
      "{{ 'a\nb' | indent(9223372036854775807) }}",
      "{{ [1] | tojson(indent=9223372036854775807) }}",
      "{{ [1] | batch(9223372036854775807, 1) | list }}",
      "{{ 'x' | replace('', 'y' * 10000000) * 9 }}"};
  ChatTemplateOptions small;  // so that the tests need not touch a gigabyte
  small.limits.allocated_bytes = 100 << 20;
  small.limits.output_bytes = 10 << 20;
  for (const char* source : growers)
    EXPECT_NE(render_error(source, Json::object(), small), "no error") << source;
  small.limits.output_bytes = 10;
  EXPECT_EQ(render("{{ 'x' * 10 }}", Json::object(), small), "xxxxxxxxxx");
  EXPECT_NE(render_error("{{ 'x' * 11 }}", Json::object(), small).find("more than 10 bytes of output"),
            std::string::npos);
}

TEST(ChatTemplate, LongSearchesAndManyNamesTakeLittleTime) {  // hopeless, not just slow, without their bounds
  const char* const searches[] = {"{{ ('a' * 2000000).find('a' * 1000000 ~ 'b') }}",
                                  "{{ ('a' * 1000000 ~ 'b') in 'a' * 2000000 }}",
                                  "{{ ('a' * 2000000).count('a' * 1000000 ~ 'b') }}",
                                  "{{ ('a' * 2000000).replace('a' * 1000000 ~ 'b', '') | length }}",
                                  "{{ ('a' * 2000000).split('a' * 1000000 ~ 'b') | length }}"};
  for (const char* source : searches) EXPECT_LT(render(source).size(), 10U) << source;
  for (const char* method : {"rfind", "rsplit", "rpartition"})
    EXPECT_NE(render_error("{{ ('a' * 2000000)." + std::string(method) + "('b' ~ 'a' * 1000000) }}")
                  .find("more than"),
              std::string::npos);
  std::string names, arguments;
  for (int i = 0; i < 100000; ++i) names += cat("{{a", i, "}}");
  for (int i = 0; i < 100000; ++i) arguments += cat(",a", i, "=1");
  EXPECT_NE(load_error(names).find("different names"), std::string::npos);
  EXPECT_NE(load_error("{{ f(a=1" + arguments + ") }}").find("arguments"), std::string::npos);
}

TEST(ChatTemplate, RendersFromManyThreads) {
  const ChatTemplate shared("{% macro m(x) %}{{ x }}{% endmacro %}{% for x in l %}{{ m(x) }}{% endfor %}");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) texts[i] = shared.render({{"l", {i, i + 1}}});
    });
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(texts[i], std::to_string(i) + std::to_string(i + 1));
}

class LoadChatTemplate : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void write(const std::string& name, std::string_view text) { std::ofstream(dir_ / name) << text; }
  std::string load(bool for_tools = false) {
    return load_chat_template(dir_.string(), for_tools).render(Json::object());
  }

  std::filesystem::path dir_ = std::filesystem::path(testing::TempDir()) / "asynct_chat_template";
};

TEST_F(LoadChatTemplate, FindsTheTemplateInEveryForm) {
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(load(), "one");
  EXPECT_EQ(load_chat_template((dir_ / "tokenizer_config.json").string()).render(Json::object()), "one");
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(load(), "plain");
  EXPECT_EQ(load(true), "tools");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"}]})");
  EXPECT_EQ(load(true), "plain");
  write("chat_template.jinja", "file");
  EXPECT_EQ(load(), "file");
}

TEST_F(LoadChatTemplate, ErrorsNameTheFile) {
  const auto problem = [&] { return message_of([&] { load(); }); };
  EXPECT_NE(problem().find("tokenizer_config.json"), std::string::npos);
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "no chat_template"},
      {"[]", "no chat_template"},
      {R"({"chat_template": null})", "no chat_template"},
      {R"({"chat_template": 5})", "expected a string or a list"},
      {R"({"chat_template": [1]})", "expected objects"},
      {R"({"chat_template": [{"name": "x", "template": "y"}]})", "no template is named \"default\""},
      {R"({"chat_template": "{% nope %}"})", "unexpected tag \"nope\""},
      {"{", "not valid JSON"}};
  for (const auto& [text, expected] : cases) {
    write("tokenizer_config.json", text);
    EXPECT_NE(problem().find(expected), std::string::npos) << text << ": " << problem();
    EXPECT_NE(problem().find("tokenizer_config.json"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace asynct
