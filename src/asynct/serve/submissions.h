#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "asynct/engine/engine_thread.h"

namespace asynct::serve {

/// What one HTTP request has in the engine: submitted and cancelled together. Any thread.
class Submissions {
 public:
  explicit Submissions(EngineThread& engine) : engine_(engine) {}

  /// RequestError, and the engine has nothing of it, when the queue has no room for all (429) or never has.
  void submit(std::vector<Submission> submissions);
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
