#include "asynct/serve/submissions.h"

#include <utility>

#include "asynct/serve/request_fields.h"

namespace asynct::serve {

void Submissions::add(std::vector<Request> tree, std::shared_ptr<SubmissionListener> listener) {
  const auto ticket = engine_.submit(std::move(tree), std::move(listener));
  if (!ticket) {
    cancel();
    throw RequestError("the queue is full; try again later", "", 429, "queue_full");
  }
  const std::lock_guard lock(mutex_);
  tickets_.push_back(*ticket);
  if (cancelled_) engine_.cancel(*ticket);
}

void Submissions::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (const EngineThread::Ticket ticket : tickets_) engine_.cancel(ticket);
}

bool Submissions::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

}  // namespace asynct::serve
