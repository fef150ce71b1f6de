#pragma once

#include "asynct/base/function_ref.h"

namespace asynct {

/// Calls `function` on a thread whose stack is large enough for recursion as deep as any text that is let in,
/// and waits for it. What it throws comes through. Error when there is no such thread to be had.
void run_on_big_stack(FunctionRef<void()> function);

}  // namespace asynct
