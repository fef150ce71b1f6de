#pragma once

#include "asynct/text/chat_template/arguments.h"
#include "asynct/text/chat_template/runtime.h"

namespace asynct::jinja {

/// range(...). Errors: step 0, more elements than the limit.
Value make_range(Runtime& runtime, Arguments arguments);

/// namespace(...): of a dict or pairs, and named arguments.
Value make_namespace(Runtime& runtime, Arguments arguments);

/// strftime_now(format): local time.
Value format_now(Runtime& runtime, Arguments arguments);

}  // namespace asynct::jinja
