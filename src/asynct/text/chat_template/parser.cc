#include "asynct/text/chat_template/parser.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "asynct/text/chat_template/expression_parser.h"
#include "asynct/text/chat_template/scopes.h"

namespace asynct::jinja {
namespace {

// Tags of Jinja and of its extensions that are not supported; any other unknown tag is a mistake.
constexpr std::string_view kRefusedTags[] = {"block", "extends",    "include", "import", "from",
                                             "with",  "autoescape", "call",    "filter", "print",
                                             "do",    "debug",      "trans"};

class Parser {
 public:
  Parser(TokenReader& tokens, std::vector<std::string>& names, int max_depth)
      : tokens_(tokens), expressions_(tokens, names, max_depth) {
    expressions_.intern("loop");  // kLoopName
  }

  Body parse_all() {
    Body body;
    while (!tokens_.at(TokenKind::kEnd)) parse_one(body, {});
    return body;
  }

 private:
  using Words = std::initializer_list<std::string_view>;
  using Level = ExpressionParser::Level;

  /// Adds what comes next; returns true, adding nothing, at a tag that is one of `ends`.
  bool parse_one(Body& body, Words ends) {
    const int line = tokens_.line();
    if (tokens_.at(TokenKind::kText)) {
      add(body, line, Text{tokens_.take().text});
    } else if (tokens_.at(TokenKind::kVariableBegin)) {
      tokens_.take();
      add(body, line, Output{expressions_.parse_tuple()});
      tokens_.expect(TokenKind::kVariableEnd, "'}}'");
    } else {
      tokens_.expect(TokenKind::kBlockBegin, "a tag");
      if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return tokens_.at_name(end); }))
        return true;
      parse_statement(body);
      tokens_.expect(TokenKind::kBlockEnd, "'%}'");
    }
    return false;
  }

  template <class Node>
  void add(Body& body, int line, Node node) {
    body.push_back(std::make_unique<Statement>(Statement{line, std::move(node)}));
  }

  /// The body of the tag `tag` up to one of `ends`, whose word is the next token.
  Body parse_body(std::string_view tag, int line, Words ends) {
    tokens_.skip_operator(":");
    tokens_.expect(TokenKind::kBlockEnd, "'%}'");
    const Level level(expressions_);
    Body body;
    do {
      if (tokens_.at(TokenKind::kEnd)) tokens_.error_at(line, tag, " without ", *std::prev(ends.end()));
    } while (!parse_one(body, ends));
    return body;
  }

  void parse_statement(Body& body) {
    const int line = tokens_.line();
    const std::string tag = tokens_.expect(TokenKind::kName, "the name of a tag").text;
    if (tag == "if") return add(body, line, parse_if(line));
    if (tag == "for") return add(body, line, parse_for(line));
    if (tag == "set") return parse_set(body, line);
    if (tag == "macro") return add(body, line, parse_macro(line));
    if (tag == "generation") return add(body, line, parse_generation(line));
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) tokens_.error_at(line, tag, " outside of a loop");
      return tag == "break" ? add(body, line, Break{}) : add(body, line, Continue{});
    }
    const bool refused =
        std::find(std::begin(kRefusedTags), std::end(kRefusedTags), tag) != std::end(kRefusedTags);
    tokens_.error_at(line, refused ? "the tag \"" : "unexpected tag \"", tag,
                     refused ? "\" is not supported" : "\"");
  }

  If parse_if(int line) {
    If node;
    std::string word = "elif";
    while (word == "elif") {
      ExprPtr condition = expressions_.parse_tuple(false);
      Body body = parse_body("if", line, {"elif", "else", "endif"});
      node.branches.emplace_back(std::move(condition), std::move(body));
      word = tokens_.take().text;
    }
    if (word == "else") {
      node.otherwise = parse_body("if", line, {"endif"});
      tokens_.take();
    }
    return node;
  }

  For parse_for(int line) {
    For node;
    ++fors_;
    node.target = parse_targets("in", false);
    tokens_.expect_name("in");
    node.iterable = expressions_.parse_tuple(false, "recursive");
    if (tokens_.skip_name("if")) node.condition = expressions_.parse();
    if (tokens_.at_name("recursive")) tokens_.error("recursive loops are not supported");
    ++loops_;
    node.body.statements = parse_body("for", line, {"else", "endfor"});
    --loops_;
    if (tokens_.take().text == "else") {
      node.otherwise.statements = parse_body("for", line, {"endfor"});
      tokens_.take();
    }
    --fors_;
    return node;
  }

  void parse_set(Body& body, int line) {
    Target target = parse_targets({}, true);
    if (tokens_.skip_operator("="))
      return add(body, line, Assign{std::move(target), expressions_.parse_tuple()});
    if (tokens_.at_operator("|")) tokens_.error("filters of a set block are not supported");
    AssignBlock block{std::move(target), {}};
    block.body.statements = parse_body("set", line, {"endset"});
    tokens_.take();
    add(body, line, std::move(block));
  }

  Target parse_target(bool with_namespace) {
    Target target;
    target.line = tokens_.line();
    if (tokens_.skip_operator("(")) {
      const Level level(expressions_);
      target = parse_targets({}, false);
      tokens_.expect_operator(")");
      return target;
    }
    const std::string name = tokens_.expect(TokenKind::kName, "a name to assign to").text;
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"})
      if (name == constant) tokens_.error_at(target.line, "cannot assign to ", name);
    target.name = expressions_.intern(name);
    if (with_namespace && tokens_.skip_operator(".")) {
      target.attribute = tokens_.expect(TokenKind::kName, "the name of an attribute").text;
    } else if (name == "loop" && fors_ > 0) {
      tokens_.error_at(target.line, "cannot assign to loop inside of a loop");
    }
    return target;
  }

  /// A target, or several with commas between them; `end` is a word that may follow a last comma.
  Target parse_targets(std::string_view end, bool with_namespace) {
    Target tuple;
    tuple.line = tokens_.line();
    const auto ends = [&] {
      return tokens_.at(TokenKind::kBlockEnd) || tokens_.at_operator(")") ||
             (!end.empty() && tokens_.at_name(end));
    };
    bool is_tuple = false;
    do {
      if (is_tuple && ends()) break;
      tuple.elements.push_back(parse_target(with_namespace));
      is_tuple = is_tuple || tokens_.at_operator(",");
    } while (tokens_.skip_operator(","));
    if (is_tuple) return tuple;
    Target only = std::move(tuple.elements.front());
    return only;
  }

  MacroDefinition parse_macro(int line) {
    MacroDefinition macro;
    macro.name = parse_target(false).name;
    tokens_.expect_operator("(");
    std::set<NameId> seen;
    while (!tokens_.at_operator(")")) {
      const int parameter_line = tokens_.line();
      MacroParameter parameter{parse_target(false).name, nullptr};
      if (!seen.insert(parameter.name).second) tokens_.error_at(parameter_line, "a parameter appears twice");
      if (tokens_.skip_operator("=")) {
        parameter.default_value = expressions_.parse();
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value != nullptr) {
        tokens_.error_at(parameter_line, "a parameter without a default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
      if (!tokens_.skip_operator(",")) break;
    }
    tokens_.expect_operator(")");
    macro.body.statements = parse_function_body("macro", line, "endmacro");
    return macro;
  }

  Generation parse_generation(int line) {
    Generation generation;
    generation.body.statements = parse_function_body("generation", line, "endgeneration");
    return generation;
  }

  /// A body that break and continue do not leave.
  Body parse_function_body(std::string_view tag, int line, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    expressions_.enter_function();
    Body body = parse_body(tag, line, {end});
    expressions_.leave_function();
    loops_ = loops;
    tokens_.take();
    return body;
  }

  TokenReader& tokens_;
  ExpressionParser expressions_;
  int fors_ = 0;   // around the position
  int loops_ = 0;  // that break and continue can leave
};

}  // namespace

Program parse_program(std::string_view source, std::string_view name, ChatTemplateOptions options) {
  if (source.size() > options.limits.source_bytes)
    fail(name, ": ", source.size(), " bytes of template, at most ", options.limits.source_bytes,
         " are allowed");
  Program program;
  program.name = name;
  program.options = std::move(options);
  TokenReader tokens(tokenize(source, name), name);
  program.root.statements = Parser(tokens, program.names, program.options.limits.depth).parse_all();
  resolve_scopes(program);
  return program;
}

}  // namespace asynct::jinja
