#include "asynct/text/grammar/big_stack.h"

#include <pthread.h>

#include <exception>

#include "asynct/base/error.h"

namespace asynct {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 20;  // of addresses; pages come as they are touched

struct Call {
  FunctionRef<void()> function;
  std::exception_ptr error;
};

extern "C" void* asynct_run_call(void* argument) {
  Call& call = *static_cast<Call*>(argument);
  try {
    call.function();
  } catch (...) {
    call.error = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void run_on_big_stack(FunctionRef<void()> function) {
  Call call{.function = function, .error = nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  const int failed = pthread_create(&thread, &attributes, asynct_run_call, &call);
  pthread_attr_destroy(&attributes);
  if (failed != 0) fail("no memory for a thread");
  pthread_join(thread, nullptr);
  if (call.error) std::rethrow_exception(call.error);
}

}  // namespace asynct
