#pragma once

namespace asynct {

/// Turns SIGINT and SIGTERM into a flag for as long as it lives, so that long work can stop between two steps
/// and write what it has. A second signal while the flag is set ends the process at once. Guards may nest:
/// the outermost one clears the flag and installs the handlers, and its end restores what was there before.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested() { return signal() != 0; }
  /// The signal that came: SIGINT or SIGTERM; 0: none. A process that it ends exits with 128 + signal().
  static int signal();
  static void clear();
};

}  // namespace asynct
