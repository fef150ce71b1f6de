// LAMBADA (last word of a passage) and WikiText-2 (perplexity of whole pages).

#include <array>
#include <utility>

#include "asynct/eval/tasks.h"
#include "asynct/text/python_string.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

/// `open\s*([^close]*?)\s*close` -> open, the group, close: white space inside the pair goes. For quotes the
/// two characters are the same.
std::string tighten(std::string_view text, char open, char close) {
  std::string out;
  for (;;) {
    const std::size_t begin = text.find(open);
    const std::size_t end = begin == std::string_view::npos ? begin : text.find(close, begin + 1);
    if (end == std::string_view::npos) return out.append(text);
    out.append(text.substr(0, begin + 1));
    out.append(python::strip(text.substr(begin + 1, end - begin - 1)));
    out += close;
    text.remove_prefix(end + 1);
  }
}

/// re.sub(r"/' [0-9]/", r"/'[0-9]/"): the replacement is literal, as upstream has it.
std::string replace_slashed_digit(std::string_view text) {
  std::string out;
  for (std::size_t at; (at = text.find("/' ")) != std::string_view::npos;) {
    const bool match =
        at + 4 < text.size() && text[at + 3] >= '0' && text[at + 3] <= '9' && text[at + 4] == '/';
    out.append(text.substr(0, at));
    out.append(match ? std::string_view("/'[0-9]/") : text.substr(at, 1));
    text.remove_prefix(at + (match ? 5 : 1));
  }
  return out.append(text);
}

using Replacement = std::pair<std::string_view, std::string_view>;

template <std::size_t n>
std::string replace_all(std::string text, const std::array<Replacement, n>& replacements) {
  for (const auto& [from, to] : replacements) text = python::replace(text, from, to);
  return text;
}

Example read_lambada(const Row& row) {
  const std::string text = row.text("text");
  const std::size_t space = text.rfind(' ');
  Example example;
  example.text = space == std::string::npos ? "" : text.substr(0, space);
  example.target = cat(" ", space == std::string::npos ? text : text.substr(space + 1));
  return example;
}

Example read_wikitext(const Row& row) {
  const std::string page = row.text("page");
  Example example;
  example.text = wikitext_detokenize(page);
  example.target = example.text;
  example.words = python::split_count(page);
  example.bytes = static_cast<std::int64_t>(page.size());
  return example;
}

}  // namespace

std::string wikitext_detokenize(std::string_view page) {
  static constexpr std::array<Replacement, 9> kPunctuation = {{{" @-@ ", "-"},
                                                               {" @,@ ", ","},
                                                               {" @.@ ", "."},
                                                               {" : ", ": "},
                                                               {" ; ", "; "},
                                                               {" . ", ". "},
                                                               {" ! ", "! "},
                                                               {" ? ", "? "},
                                                               {" , ", ", "}}};
  static constexpr std::array<Replacement, 8> kRest = {{{"= = = =", "===="},
                                                        {"= = =", "==="},
                                                        {"= =", "=="},
                                                        {" \u00b0 ", "\u00b0"},
                                                        {" \n", "\n"},
                                                        {"\n ", "\n"},
                                                        {" N ", " 1 "},
                                                        {" 's", "'s"}}};
  std::string text = replace_slashed_digit(python::replace(page, "s '", "s'"));
  text = replace_all(std::move(text), kPunctuation);
  for (const auto& [open, close] : {std::pair('(', ')'), std::pair('[', ']'), std::pair('{', '}'),
                                    std::pair('"', '"'), std::pair('\'', '\'')})
    text = tighten(text, open, close);
  return replace_all(std::move(text), kRest);
}

void add_language_modeling_tasks(std::vector<TaskSpec>& tasks) {
  tasks.push_back({
      .name = "lambada_openai",
      .alias = "lambada_openai",
      .type = OutputType::loglikelihood,
      .files = {"lambada/lambada_openai_test.jsonl"},
      .shot_files = {"lambada/lambada_openai_test.jsonl"},
      .read = read_lambada,
      .metrics = {Metric::perplexity, Metric::acc},
  });
  tasks.push_back({
      .name = "wikitext",
      .alias = "wikitext",
      .version = 2.0,
      .type = OutputType::loglikelihood_rolling,
      .files = {"wikitext2/wikitext_test.jsonl", "wikitext2/wiki.test.raw"},
      .read = read_wikitext,
      .metrics = {Metric::word_perplexity, Metric::byte_perplexity, Metric::bits_per_byte},
  });
}

}  // namespace asynct
