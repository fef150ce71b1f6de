#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "asynct/engine/engine_thread.h"

namespace asynct::serve {

/// What one HTTP request has in the engine: submitted piece by piece, cancelled together. Any thread.
///
/// Pieces that follow others go before what waits with equal priority, as requests that run do. So the engine
/// is told priorities twice as large, and between each two is room for these.
class Submissions {
 public:
  explicit Submissions(EngineThread& engine) : engine_(engine) {}

  /// RequestError (429), and everything is cancelled, when the queue is full.
  void add(std::vector<Request> tree, std::shared_ptr<SubmissionListener> listener);
  struct Piece {
    std::vector<Request> tree;
    std::shared_ptr<SubmissionListener> listener;
  };
  /// Goes on after pieces that have ended: `tickets` are theirs, and become those of the new ones. Returns
  /// how many of these were taken: less than all, and the others are never heard of, when everything is
  /// cancelled or the engine ends. Also from a listener.
  std::size_t add_more(std::vector<Piece> pieces, std::vector<EngineThread::Ticket>& tickets);
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
