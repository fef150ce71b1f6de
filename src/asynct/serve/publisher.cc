#include "asynct/serve/publisher.h"

#include <exception>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/base/log.h"

namespace asynct::serve {

Publisher::~Publisher() {
  {
    const std::lock_guard lock(mutex_);
    exit_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Publisher::add(std::shared_ptr<Publication> publication) {
  const std::lock_guard lock(mutex_);
  added_.push_back(std::move(publication));
}

void Publisher::flush() {
  {
    const std::lock_guard lock(mutex_);
    if (added_.empty()) return;
    flushed_ = true;
  }
  wake_.notify_one();
}

void Publisher::run() {
  std::vector<std::shared_ptr<Publication>> taken;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return flushed_ || exit_; });
    std::swap(taken, added_);
    flushed_ = false;
    if (taken.empty() && exit_) return;
    lock.unlock();
    for (const auto& publication : taken) {
      try {
        publication->publish();
      } catch (const std::exception& error) {  // out of memory: this answer is lost, others go on
        log(LogLevel::error, cat("answer: ", error.what()));
      }
    }
    taken.clear();
    lock.lock();
  }
}

}  // namespace asynct::serve
