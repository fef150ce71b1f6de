#pragma once

#include <string>

#include "asynct/serve/generation.h"

// What completions and chat write alike.
namespace asynct::serve {

/// `,"finish_reason":...,"stop_reason":...`
void append_ending(std::string& out, const ChoiceDelta& delta);

/// `,"usage":{...}`
void append_usage(std::string& out, const Usage& usage);

}  // namespace asynct::serve
