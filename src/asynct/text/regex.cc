#include "asynct/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "asynct/base/error.h"
#include "asynct/text/regex_dialect.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

constexpr std::size_t kMaxPattern = 16384;
constexpr std::uint32_t kMaxNesting = 100;
constexpr std::uint32_t kDepthLimit = 100'000;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
constexpr std::size_t kJitStack = std::size_t{1} << 20;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

std::string error_text(int code) {
  PCRE2_UCHAR8 buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

/// Steps allowed for one search: generous for patterns that scan the text once, hopeless for exponential
/// ones.
std::uint32_t match_limit(std::size_t text) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(10'000'000 + std::uint64_t{16} * text, UINT32_MAX));
}

/// What a search works in. A thread keeps one: pieces are short, and making it costs more than most searches.
struct Scratch {
  MatchContext context{pcre2_match_context_create(nullptr)};
  MatchData data{pcre2_match_data_create(1, nullptr)};  // the whole match; groups are of no interest
  JitStack stack{pcre2_jit_stack_create(32 * 1024, kJitStack, nullptr)};

  Scratch() {
    pcre2_set_depth_limit(context.get(), kDepthLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

}  // namespace

struct Regex::Code {
  std::string pattern;
  std::string what;
  std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>> code;
};

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Regex(std::string_view pattern, std::string_view what)
    : code_(new Code{std::string(pattern), std::string(what), nullptr}) {
  if (pattern.size() > kMaxPattern)
    fail(what, ": a pattern of ", pattern.size(), " bytes, more than the limit of ", kMaxPattern);
  const std::string translated = to_pcre2(pattern, what);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kMaxNesting);
  int error = 0;
  PCRE2_SIZE place = 0;
  // As Oniguruma's Ruby syntax: ^ and $ match at lines. \C would split characters, so it is off.
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                  &place, context.get()));
  if (!code_->code)
    fail(what, ": pattern \"", pattern, "\": ", error_text(error), " at byte ", std::size_t{place});
  pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE);  // where it fails the interpreter serves
}

void Regex::for_each_match(std::string_view text,
                           FunctionRef<void(std::size_t begin, std::size_t end)> match) const {
  const pcre2_code* const code = code_->code.get();
  thread_local Scratch scratch;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    pcre2_set_match_limit(scratch.context.get(), match_limit(text.size()));  // match() may have searched, too
    const int found = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.data.get(),
                                  scratch.context.get());
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0)
      fail(code_->what, ": pattern \"", code_->pattern, "\" over ", text.size(),
           " bytes: ", error_text(found));
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(scratch.data.get());
    const std::size_t begin = range[0], end = range[1];
    if (begin > end || begin < from)  // \K in a lookaround
      fail(code_->what, ": pattern \"", code_->pattern, "\" matches backwards");
    const bool empty = begin == end;
    if (!(empty && begin == last_end)) match(begin, end);
    last_end = end;
    from = end;
    if (empty)
      from += end < text.size() ? static_cast<std::size_t>(decode_valid_utf8(text.data() + end).length) : 1;
  }
}

}  // namespace asynct
