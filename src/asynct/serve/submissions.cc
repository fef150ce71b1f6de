#include "asynct/serve/submissions.h"

#include <algorithm>
#include <utility>

#include "asynct/serve/request_fields.h"

namespace asynct::serve {

void Submissions::add(std::vector<Request> tree, std::shared_ptr<SubmissionListener> listener) {
  tree.front().priority *= 2;
  const auto ticket = engine_.submit(std::move(tree), std::move(listener));
  if (!ticket) {
    cancel();
    throw RequestError("the queue is full; try again later", "", 429, "queue_full");
  }
  const std::lock_guard lock(mutex_);
  tickets_.push_back(*ticket);
  if (cancelled_) engine_.cancel(*ticket);
}

std::size_t Submissions::add_more(std::vector<Piece> pieces, std::vector<EngineThread::Ticket>& tickets) {
  const std::lock_guard lock(mutex_);
  std::erase_if(tickets_, [&](EngineThread::Ticket ticket) {
    return std::find(tickets.begin(), tickets.end(), ticket) != tickets.end();
  });
  tickets.clear();
  for (Piece& piece : pieces) {
    if (cancelled_) break;
    piece.tree.front().priority = 2 * piece.tree.front().priority - 1;
    const auto ticket = engine_.submit_more(std::move(piece.tree), std::move(piece.listener));
    if (!ticket) break;
    tickets.push_back(*ticket);
  }
  tickets_.insert(tickets_.end(), tickets.begin(), tickets.end());
  return tickets.size();
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
