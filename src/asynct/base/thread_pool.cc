#include "asynct/base/thread_pool.h"

#include <immintrin.h>

#include <algorithm>
#include <cassert>
#include <system_error>
#include <utility>

#include "asynct/base/error.h"

namespace asynct {
namespace {

// 100 to 200 microseconds: longer than the gap between two operators of a layer and than what one worker of a
// small layer does alone (a sleeping thread takes tens of microseconds to wake), short enough to leave a
// shared core to others when the engine is idle.
constexpr int kSpins = 4000;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  assert(threads >= 1);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    stop();
    fail("cannot start ", threads, " threads: ", error.what(), "; ask for fewer");
  } catch (...) {  // no memory for one: those that run must be joined
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::run(FunctionRef<void(int)> task) {
  if (workers_.empty()) return task(0);
  task_ = &task;
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  call(0);
  wait_for_workers();
  if (!failed_.load(std::memory_order_relaxed)) return;
  failed_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::call(int worker) noexcept {
  try {
    (*task_)(worker);
  } catch (...) {  // whatever it is, it is the caller's
    if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
}

void ThreadPool::wait_for_workers() {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (running_.load(std::memory_order_acquire) == 0) return;
    _mm_pause();
  }
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire))
    running_.wait(left, std::memory_order_acquire);
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  while (true) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin)
      _mm_pause();
    generation_.wait(seen, std::memory_order_acquire);
    ++seen;  // run() waits for every worker, so no generation can be missed
    if (stopping_.load(std::memory_order_relaxed)) return;
    call(worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain,
                              FunctionRef<void(std::int64_t, std::int64_t, int)> body) {
  assert(grain >= 1);
  if (count <= grain || workers_.empty()) {
    for (std::int64_t begin = 0; begin < count; begin += grain)
      body(begin, std::min(begin + grain, count), 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  run([&](int worker) {
    while (true) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count || failed_.load(std::memory_order_relaxed)) return;
      body(begin, std::min(begin + grain, count), worker);
    }
  });
}

}  // namespace asynct
