#pragma once

#include <memory>

#include "asynct/serve/request_fields.h"
#include "asynct/text/grammar/grammar.h"

namespace asynct::serve {

/// What a request says its texts must be like: OpenAI's response_format, vLLM's structured_outputs and its
/// older guided_* fields; null: nothing. RequestError naming the field for more than one, for what is no such
/// thing, for what the grammar engine cannot hold to, and in a beam search. compiler: may be null, as in a
/// build without one.
std::shared_ptr<const Constraint> constraint_of(const Fields& fields, const GrammarCompiler* compiler,
                                                bool beam_search);

}  // namespace asynct::serve
