#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "asynct/base/checked.h"
#include "asynct/base/cpu_features.h"
#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/base/json.h"
#include "asynct/base/mapped_file.h"
#include "asynct/base/printable.h"
#include "asynct/base/thread_pool.h"

namespace asynct {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Strings, CatJoinsTextAndNumbers) {
  EXPECT_EQ(cat("layer ", 3, ": ", 0.5, ' ', true), "layer 3: 0.5 true");
}

TEST(Checked, OverflowIsAnErrorThatNamesTheThing) {
  constexpr auto kMax = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(checked_mul(3, 5, "x"), 15U);
  EXPECT_EQ(message_of([] { checked_mul(kMax, 2, "tensor a"); }).substr(0, 9), "tensor a:");
  EXPECT_EQ(message_of([] { checked_add(kMax, 1, "end of b"); }).substr(0, 9), "end of b:");
  EXPECT_EQ(checked_cast<std::int32_t>(std::int64_t{-7}, "c"), -7);
  EXPECT_THROW(checked_cast<std::int32_t>(std::int64_t{1} << 40, "c"), Error);
  EXPECT_THROW(checked_cast<std::uint64_t>(-1, "c"), Error);
}

TEST(ThreadPool, EveryPieceRunsOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> hits(101);
      pool.parallel_for(101, 1 + round % 13, [&](std::int64_t begin, std::int64_t end, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        for (std::int64_t i = begin; i < end; ++i) hits[static_cast<std::size_t>(i)].fetch_add(1);
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, RunReachesEveryWorker) {
  ThreadPool pool(5);
  std::vector<std::atomic<int>> hits(5);
  for (int round = 0; round < 100; ++round)
    pool.run([&](int worker) { hits[static_cast<std::size_t>(worker)].fetch_add(1); });
  for (const auto& hit : hits) EXPECT_EQ(hit.load(), 100);
}

TEST(ThreadPool, AvailableWorkersTakePartOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> hits(static_cast<std::size_t>(threads));
    constexpr int kRounds = 2000;
    for (int round = 1; round <= kRounds; ++round) {
      pool.run_available([&](int worker) { hits[static_cast<std::size_t>(worker)].fetch_add(1); });
      ASSERT_EQ(hits[0].load(), round);
      for (const auto& hit : hits) ASSERT_LE(hit.load(), round);
    }
    pool.run([&](int worker) { hits[static_cast<std::size_t>(worker)] = -1; });  // late ones are not lost
    for (const auto& hit : hits) EXPECT_EQ(hit.load(), -1);
  }
}

// gcc's tsan delivers a signal only where the thread calls into its runtime, which a waiting worker does not.
#if !defined(__SANITIZE_THREAD__)

/// Holds threads in a signal handler, as a system does that has not scheduled them.
class Hold {
 public:
  explicit Hold(std::vector<pthread_t> threads) : threads_(std::move(threads)) {
    EXPECT_EQ(::pipe(pipe_), 0);
    held_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) {
      ++held_;
      char byte = 0;
      [[maybe_unused]] const auto got = ::read(pipe_[0], &byte, 1);  // until the other end is closed
      --held_;
    };
    ::sigaction(SIGUSR1, &action, nullptr);
    for (const pthread_t thread : threads_) ::pthread_kill(thread, SIGUSR1);
    while (held_ != static_cast<int>(threads_.size())) std::this_thread::yield();
  }
  ~Hold() {
    release();
    while (held_ != 0) std::this_thread::yield();
    ::close(pipe_[0]);
    ::signal(SIGUSR1, SIG_DFL);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void release() {
    if (!released_.exchange(true)) ::close(pipe_[1]);
  }
  bool released() const { return released_; }

 private:
  static inline int pipe_[2];
  static inline std::atomic<int> held_{0};
  std::vector<pthread_t> threads_;
  std::atomic<bool> released_{false};
};

TEST(ThreadPool, AWorkerThatIsNotScheduledIsNotWaitedFor) {
  using namespace std::chrono_literals;
  for (const auto idle : {0ms, 30ms}) {  // held while it spins, while it sleeps
    ThreadPool pool(3);
    std::vector<pthread_t> threads(3);
    pool.run([&](int worker) { threads[static_cast<std::size_t>(worker)] = ::pthread_self(); });
    std::this_thread::sleep_for(idle);
    Hold hold({threads[1], threads[2]});
    std::atomic<bool> done = false;
    std::thread watchdog([&] {  // a pool that waits would wait forever
      for (int i = 0; i < 1000 && !done; ++i) std::this_thread::sleep_for(10ms);
      hold.release();
    });
    for (int round = 0; round < 1000; ++round) {
      int pieces = 0;  // all are the caller's
      pool.parallel_for(64, 1,
                        [&](std::int64_t, std::int64_t, int worker) { pieces += worker == 0 ? 1 : 100; });
      EXPECT_EQ(pieces, 64);
    }
    EXPECT_FALSE(hold.released());
    done = true;
    watchdog.join();
    std::atomic<int> calls = 0;
    pool.run([&](int) { ++calls; });  // once they are scheduled again they take part again
    EXPECT_EQ(calls, 3);
  }
}

#endif

TEST(ThreadPool, TheCallerGetsTheFirstExceptionOfAnyWorker) {
  struct Oddity {
    int worker;
  };
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int thrower = 0; thrower < threads; ++thrower) {
      int caught = -1;
      try {
        pool.run([&](int worker) {
          if (worker == thrower) throw Oddity{worker};  // need not derive from anything
        });
      } catch (const Oddity& oddity) {
        caught = oddity.worker;
      }
      EXPECT_EQ(caught, thrower);
    }
    EXPECT_THROW(pool.run([](int) { throw std::bad_alloc(); }), std::bad_alloc);  // all at once
    std::atomic<int> calls = 0;
    pool.run([&](int) { ++calls; });  // and the pool is as good as new
    EXPECT_EQ(calls, threads);
  }
}

TEST(ThreadPool, NoPieceBeginsAfterAnException) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> pieces = 0;
    constexpr int kMany = 1 << 30;  // more than could be called
    const auto body = [&](std::int64_t begin, std::int64_t, int) {
      ++pieces;
      if (begin == 100) fail("piece 100");
    };
    EXPECT_EQ(message_of([&] { pool.parallel_for(kMany, 1, body); }), "piece 100");
    EXPECT_GT(pieces, 100);
    EXPECT_LT(pieces, kMany);
  }
}

TEST(InterruptGuard, NestsAndRestoresTheHandlers) {
  struct sigaction before {};
  struct sigaction after {};
  ASSERT_EQ(sigaction(SIGINT, nullptr, &before), 0);
  {
    const InterruptGuard outer;
    EXPECT_EQ(InterruptGuard::signal(), 0);
    { const InterruptGuard inner; }
    std::raise(SIGINT);  // kills the process when the inner guard has taken the handler away
    EXPECT_TRUE(InterruptGuard::requested());
    EXPECT_EQ(InterruptGuard::signal(), SIGINT);
    {
      const InterruptGuard inner;
      EXPECT_TRUE(InterruptGuard::requested());  // the outer guard has not answered it yet
      InterruptGuard::clear();
      std::raise(SIGTERM);
    }
    EXPECT_EQ(InterruptGuard::signal(), SIGTERM);
  }
  ASSERT_EQ(sigaction(SIGINT, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  const InterruptGuard next;
  EXPECT_FALSE(InterruptGuard::requested());
}

TEST(Printable, IsOneLineOfUtf8WithoutControls) {
  EXPECT_EQ(printable("Gr\u00fc\u00dfe \U0001F600"), "Gr\u00fc\u00dfe \U0001F600");
  EXPECT_EQ(printable("a\nb\x1b[2Jc\x7f\u009b"), "a b [2Jc  ");
  EXPECT_EQ(printable("\xff|\xed\xa0\x80|\xc0\x9b|\xc3"), "\uFFFD|\uFFFD\uFFFD\uFFFD|\uFFFD\uFFFD|\uFFFD");
  EXPECT_EQ(printable(""), "");
}

TEST(Json, RefusesDepthDuplicatesAndTrailingText) {
  EXPECT_EQ(parse_json(R"({"b": 1, "a": [2]})", "t").dump(), R"({"b":1,"a":[2]})");
  EXPECT_NE(message_of([] { parse_json(R"({"a":1,"a":2})", "f.json"); }).find("\"a\" appears twice"),
            std::string::npos);
  EXPECT_NE(message_of([] { parse_json(std::string(100000, '['), "f.json"); }).find("deeper"),
            std::string::npos);
  EXPECT_THROW(parse_json("{} x", "t"), Error);
  EXPECT_THROW(parse_json("", "t"), Error);
  EXPECT_THROW(parse_json("{\"a\": \"\xff\"}", "t"), Error);
  EXPECT_THROW(parse_json("[1e999]", "t"), Error);
}

TEST(Json, DocumentsSurviveTheRoundTrip) {
  for (const std::string_view text :
       {R"([])", R"({})", R"("a")", R"([{},[],[[1,-2,0.5,true,false,null,"\u00e9"]],{"z":{"y":[]},"a":{}}])"})
    EXPECT_EQ(parse_json(text, "t"), Json::parse(text)) << text;
}

TEST(Json, DepthCountsContainers) {
  const std::string four = "[{\"a\":[{}]}]";
  EXPECT_EQ(parse_json(four, "t", 4).dump(), four);
  EXPECT_EQ(message_of([&] { parse_json(four, "t", 3); }), "t: JSON is nested deeper than 3 levels");
}

// Hopeless, not just slow, when time is quadratic in the keys of an object.
TEST(Json, ManyKeysOfOneObject) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += cat(i == 0 ? "" : ",", "\"model.layers.tensor.", i, "\":", i);
  const Json json = parse_json(text + "}", "t");
  ASSERT_EQ(json.size(), 200000U);
  EXPECT_EQ(json.begin().key(), "model.layers.tensor.0");  // the order of the text, not of the alphabet
  EXPECT_EQ(std::prev(json.end()).value(), 199999);
  text += R"(,"model.layers.tensor.77":0})";
  EXPECT_NE(message_of([&] { parse_json(text, "t"); }).find("\"model.layers.tensor.77\" appears twice"),
            std::string::npos);
}

TEST(Json, DumpReplacesInvalidUtf8) { EXPECT_EQ(dump_json(Json("a\xffz")), "\"a\xEF\xBF\xBDz\""); }

TEST(MappedFile, ReadsAndNamesWhatIsMissing) {
  const auto path = std::filesystem::temp_directory_path() / "asynct_mapped_file_test";
  std::ofstream(path) << "hello";
  const MappedFile file(path);
  ASSERT_EQ(file.bytes().size(), 5U);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), 'o');
  EXPECT_EQ(read_file(path, 5), "hello");
  EXPECT_NE(message_of([&] { read_file(path, 4); }).find("limit of 4"), std::string::npos);
  std::ofstream(path, std::ios::trunc) << "";
  EXPECT_TRUE(MappedFile(path).bytes().empty());
  std::filesystem::remove(path);
  EXPECT_NE(message_of([&] { MappedFile{path}; }).find("cannot open"), std::string::npos);
  EXPECT_NE(message_of([] { MappedFile{"/"}; }).find("not a regular file"), std::string::npos);
}

TEST(CpuFeatures, OverrideIsChecked) {
  EXPECT_TRUE(cpu_runs(Isa::scalar));
  for (const Isa isa : kIsas) {
    setenv("ASYNCT_ISA", std::string(name(isa)).c_str(), 1);
    if (cpu_runs(isa))
      EXPECT_EQ(select_isa(), isa);
    else
      EXPECT_NE(message_of([] { select_isa(); }).find("this CPU offers at most"), std::string::npos);
  }
  setenv("ASYNCT_ISA", "sse9", 1);
  EXPECT_NE(message_of([] { select_isa(); }).find("expected scalar, avx2"), std::string::npos);
  unsetenv("ASYNCT_ISA");
}

}  // namespace
}  // namespace asynct
