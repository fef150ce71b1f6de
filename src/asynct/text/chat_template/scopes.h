#pragma once

#include "asynct/text/chat_template/ast.h"

namespace asynct::jinja {

/// Fills ScopedBody::undefined throughout. Jinja decides where a name lives before anything runs: a name that
/// a body sets (not only in a branch of an if), without having read it before and without an outer body that
/// knows it, is the body's own from its beginning. Until it is set it is undefined there and further in, even
/// if the caller of the template gave a variable of that name.
void resolve_scopes(Program& program);

}  // namespace asynct::jinja
