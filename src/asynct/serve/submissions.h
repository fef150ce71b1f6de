#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "asynct/engine/engine_thread.h"

namespace asynct::serve {

/// What one HTTP request has in the engine: submitted piece by piece, cancelled together. Any thread.
class Submissions {
 public:
  explicit Submissions(EngineThread& engine) : engine_(engine) {}

  /// RequestError (429), and everything is cancelled, when the queue is full.
  void add(std::vector<Request> tree, std::shared_ptr<SubmissionListener> listener);
  /// Also what is added later.
  void cancel();
  bool cancelled() const;

 private:
  EngineThread& engine_;
  mutable std::mutex mutex_;
  std::vector<EngineThread::Ticket> tickets_;
  bool cancelled_ = false;
};

}  // namespace asynct::serve
