#include "asynct/base/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace asynct {
namespace {

volatile std::sig_atomic_t g_requested = 0;  // a signal handler can reach nothing but a global
struct sigaction g_old_interrupt;
struct sigaction g_old_terminate;

void on_signal(int number) {
  if (g_requested != 0) ::_exit(128 + number);
  g_requested = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_requested = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &g_old_interrupt);
  ::sigaction(SIGTERM, &action, &g_old_terminate);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &g_old_interrupt, nullptr);
  ::sigaction(SIGTERM, &g_old_terminate, nullptr);
}

bool InterruptGuard::requested() { return g_requested != 0; }
void InterruptGuard::clear() { g_requested = 0; }

}  // namespace asynct
