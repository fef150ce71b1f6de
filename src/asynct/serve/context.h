#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asynct/engine/engine_thread.h"
#include "asynct/serve/limits.h"
#include "asynct/serve/metrics.h"
#include "asynct/text/tokenizer.h"

namespace asynct {
class ChatTemplate;
class GrammarCompiler;
}  // namespace asynct

namespace asynct::serve {

class Publisher;

/// What handlers of requests share. Everything outlives them.
struct Context {
  const Tokenizer& tokenizer;
  EngineThread& engine;
  Publisher& publisher;
  Metrics& metrics;
  std::vector<std::string> model_names;  // the first one is answered
  std::vector<Token> end_tokens;
  std::int64_t vocabulary = 0;
  std::int64_t max_length = 0;
  std::int64_t created = 0;  // Unix time of the start
  const ChatTemplate* chat_template = nullptr;
  std::string no_template;                    // why there is none
  const GrammarCompiler* grammars = nullptr;  // null: texts cannot be constrained
  RequestLimits limits;
};

}  // namespace asynct::serve
