#include "asynct/base/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

namespace asynct {
namespace {

// A signal handler can reach nothing but globals, and of those only lock-free atomics.
std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

std::mutex g_mutex;  // over what follows
int g_guards = 0;
struct sigaction g_old_interrupt;
struct sigaction g_old_terminate;

void on_signal(int number) {
  if (g_signal.exchange(number) != 0) ::_exit(128 + number);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  const std::lock_guard lock(g_mutex);
  if (g_guards++ > 0) return;
  g_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &g_old_interrupt);
  ::sigaction(SIGTERM, &action, &g_old_terminate);
}

InterruptGuard::~InterruptGuard() {
  const std::lock_guard lock(g_mutex);
  if (--g_guards > 0) return;
  ::sigaction(SIGINT, &g_old_interrupt, nullptr);
  ::sigaction(SIGTERM, &g_old_terminate, nullptr);
}

int InterruptGuard::signal() { return g_signal; }
void InterruptGuard::clear() { g_signal = 0; }

}  // namespace asynct
