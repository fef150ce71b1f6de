#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "asynct/base/function_ref.h"

namespace asynct {

/// Persistent workers for data-parallel kernels. The calling thread is worker 0, so ThreadPool(1) starts
/// none. Workers spin for a moment between tasks (a transformer layer is a burst of short tasks), then sleep.
/// One caller at a time; tasks must not start tasks of their own on the same pool. When tasks throw, the
/// first exception is rethrown in the caller once all workers that take part are done.
///
/// Work is handed out in pieces, and nobody waits for a worker that the system has not scheduled: one that
/// comes when all pieces are taken finds the task closed. Only run() waits for every worker.
class ThreadPool {
 public:
  /// Error when the system grants fewer threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(worker) once on every worker, 0 <= worker < size(), and returns when all have returned.
  void run(FunctionRef<void(int worker)> task);

  /// Calls task(0) here and task(worker) once on each worker that comes before task(0) has returned; returns
  /// when all of these have. For tasks that take pieces from a shared counter until none is left.
  void run_available(FunctionRef<void(int worker)> task);

  /// Calls body(begin, end, worker) over [0, count) in pieces of `grain`, taken in order from a shared
  /// counter. Which worker gets a piece depends on timing, so a piece's result must not depend on its worker.
  /// Once a body has thrown, no further piece is begun.
  void parallel_for(std::int64_t count, std::int64_t grain,
                    FunctionRef<void(std::int64_t begin, std::int64_t end, int worker)> body);

 private:
  void work(int worker);
  bool join(std::uint32_t& seen);
  void leave();
  void call(int worker) noexcept;
  void close();
  void stop();

  std::vector<std::thread> workers_;
  std::atomic<std::uint32_t> generation_{0};  // bumped to start a task: what idle workers watch
  // The generation of the last task (upper half), whether workers may join it, and how many are in it.
  // Workers change it only while it is open or they are in it.
  std::atomic<std::uint64_t> gate_{0};
  std::atomic<bool> stopping_{false};
  const FunctionRef<void(int)>* task_ = nullptr;  // valid while the gate is open or a worker is in it
  std::atomic<bool> failed_{false};               // a worker has thrown; the first to set it owns error_
  std::exception_ptr error_;
};

}  // namespace asynct
