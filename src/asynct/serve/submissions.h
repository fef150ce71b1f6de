#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "asynct/engine/engine_thread.h"

namespace asynct::serve {

/// What one HTTP request has in the engine: submitted and cancelled together. Any thread.
///
/// What follows later goes before what waits with equal priority, as requests that run do. So the engine is
/// told priorities twice as large, and between each two is room for these.
class Submissions {
 public:
  explicit Submissions(EngineThread& engine) : engine_(engine) {}

  /// RequestError, and the engine has nothing of it, when the queue has no room for all (429) or never has.
  void submit(std::vector<Submission> submissions);
  /// Goes on after submissions that have ended: `tickets` are theirs, and become those of the new ones.
  /// False, and no listener is ever heard of, when everything is cancelled or the engine ends. Also from a
  /// listener.
  bool submit_more(std::vector<Submission> submissions, std::vector<EngineThread::Ticket>& tickets);
  /// Also what is submitted later.
  void cancel();
  bool cancelled() const;

 private:
  EngineThread& engine_;
  mutable std::mutex mutex_;
  std::vector<EngineThread::Ticket> tickets_;
  bool cancelled_ = false;
};

}  // namespace asynct::serve
