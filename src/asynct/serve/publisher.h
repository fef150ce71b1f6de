#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace asynct::serve {

/// Something that has news to send.
class Publication {
 public:
  virtual ~Publication() = default;
  /// On the publisher's thread.
  virtual void publish() = 0;
};

/// The thread between the engine and the sockets: what a step made is written as JSON here, while the engine
/// is in its next step.
class Publisher {
 public:
  Publisher() : thread_([this] { run(); }) {}
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// Notes news; they are sent after flush(). Any thread.
  void add(std::shared_ptr<Publication> publication);
  /// At the end of a step.
  void flush();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Publication>> added_;
  bool flushed_ = false;
  bool exit_ = false;
  std::thread thread_;
};

}  // namespace asynct::serve
