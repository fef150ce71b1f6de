#include "asynct/serve/submissions.h"

#include <algorithm>
#include <utility>

#include "asynct/serve/request_fields.h"

namespace asynct::serve {

void Submissions::submit(std::vector<Submission> submissions) {
  const std::size_t count = submissions.size();
  for (Submission& submission : submissions) submission.tree.front().priority *= 2;
  const auto tickets = engine_.submit(std::move(submissions));
  if (!tickets && engine_.max_queue() > 0 && std::cmp_greater(count, engine_.max_queue()))
    throw RequestError(cat("the request has ", count, " parts to compute, the queue takes ",
                           engine_.max_queue(), " in all (--max-queue); send fewer at once"),
                       "");
  if (!tickets) throw RequestError("the queue is full; try again later", "", 429, "queue_full");
  const std::lock_guard lock(mutex_);
  tickets_.insert(tickets_.end(), tickets->begin(), tickets->end());
  if (!cancelled_) return;
  for (const EngineThread::Ticket ticket : *tickets) engine_.cancel(ticket);
}

bool Submissions::submit_more(std::vector<Submission> submissions,
                              std::vector<EngineThread::Ticket>& tickets) {
  const std::lock_guard lock(mutex_);
  std::erase_if(tickets_, [&](EngineThread::Ticket ticket) {
    return std::find(tickets.begin(), tickets.end(), ticket) != tickets.end();
  });
  tickets.clear();
  if (cancelled_) return false;
  for (Submission& submission : submissions) {
    std::int64_t& priority = submission.tree.front().priority;
    priority = 2 * priority - 1;
  }
  tickets_.reserve(tickets_.size() + submissions.size());  // nothing fails once they are taken
  auto taken = engine_.submit_more(std::move(submissions));
  if (!taken) return false;
  tickets_.insert(tickets_.end(), taken->begin(), taken->end());
  tickets = std::move(*taken);
  return true;
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
