#pragma once

#include <string_view>

namespace asynct::serve {

/// The page of GET /: one HTML document in UTF-8 that holds its style and script and loads nothing else. It
/// asks the server that sent it, by paths relative to its own: /v1/completions, /v1/chat/completions,
/// /metrics, /model_info, /tokenizer_info. Send it as "text/html; charset=utf-8", without asking for an API
/// key: the key is typed into it.
std::string_view page_html();

/// The value of the header Content-Security-Policy to send with it. Its hashes are of the page's style and
/// script, taken when they were built in: nothing else runs, and requests go to the page's own origin only.
std::string_view page_csp();

}  // namespace asynct::serve
