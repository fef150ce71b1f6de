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

// Of ThreadPool::gate_.
constexpr std::uint64_t kOpen = std::uint64_t{1} << 31;
constexpr std::uint64_t kInside = kOpen - 1;
constexpr int kGeneration = 32;

/// Until the bits of `mask` are zero: what is waited for may be a small piece, or on a core that others use.
template <class Integer>
void wait_for_zero(const std::atomic<Integer>& value, Integer mask) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if ((value.load(std::memory_order_acquire) & mask) == 0) return;
    _mm_pause();
  }
  for (Integer now = value.load(std::memory_order_acquire); (now & mask) != 0;
       now = value.load(std::memory_order_acquire))
    value.wait(now, std::memory_order_acquire);
}

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

void ThreadPool::run_available(FunctionRef<void(int)> task) {
  if (workers_.empty()) return task(0);
  task_ = &task;
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  gate_.store(std::uint64_t{generation} << kGeneration | kOpen, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  generation_.notify_all();
  call(0);
  close();
  if (!failed_.load(std::memory_order_relaxed)) return;
  failed_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::run(FunctionRef<void(int)> task) {
  std::atomic<int> missing{static_cast<int>(workers_.size())};
  struct Return {  // also of a task that throws
    ~Return() {
      if (worker == 0)
        wait_for_zero(missing, ~0);
      else if (missing.fetch_sub(1, std::memory_order_acq_rel) == 1)
        missing.notify_one();
    }
    std::atomic<int>& missing;
    int worker;
  };
  run_available([&](int worker) {
    const Return at_end{missing, worker};
    task(worker);
  });
}

void ThreadPool::call(int worker) noexcept {
  try {
    (*task_)(worker);
  } catch (...) {  // whatever it is, it is the caller's
    if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
}

/// No worker joins from here on; waits for those that are in the task.
void ThreadPool::close() {
  if ((gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & kInside) != 0) wait_for_zero(gate_, kInside);
}

/// Whether there is a task that the caller has not closed and that this worker has not `seen`; it is in it
/// then.
bool ThreadPool::join(std::uint32_t& seen) {
  std::uint64_t gate = gate_.load(std::memory_order_relaxed);
  do {
    const auto generation = static_cast<std::uint32_t>(gate >> kGeneration);
    if (generation == seen) return false;
    if ((gate & kOpen) == 0) {
      seen = generation;
      return false;
    }
  } while (
      !gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire, std::memory_order_relaxed));
  seen = static_cast<std::uint32_t>(gate >> kGeneration);
  return true;
}

void ThreadPool::leave() {
  const std::uint64_t before = gate_.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & (kOpen | kInside)) == 1) gate_.notify_one();  // closed, and the last one
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  while (true) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin)
      _mm_pause();
    generation_.wait(seen, std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (!join(seen)) continue;
    call(worker);
    leave();
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
  run_available([&](int worker) {
    while (true) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count || failed_.load(std::memory_order_relaxed)) return;
      body(begin, std::min(begin + grain, count), worker);
    }
  });
}

}  // namespace asynct
