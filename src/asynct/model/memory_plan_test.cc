#include "asynct/model/memory_plan.h"

#include <optional>

#include "asynct/base/error.h"
#include "asynct/model/decoder.h"
#include "asynct/model/synth.h"
#include "asynct/model/test_files.h"

namespace asynct {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

class Plan : public ::testing::Test {
 protected:
  Plan() : pool_(2), context_(pool_, Isa::scalar, Precision::fp32) {
    SynthOptions options{.out = dir_ / "m"};
    options.shape = "tiny,layers=2,positions=4096,vocab=512";
    write_synthetic(options, pool_);
    source_ = open_source(options.out);
  }

  MemoryPlan plan(const RunSize& size, std::int64_t bytes) {
    return plan_memory(context_, source_->config, source_->weights, size, {bytes, "a test's limit"});
  }
  std::string refusal(const RunSize& size, std::int64_t bytes) {
    try {
      plan(size, bytes);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  static std::int64_t held(const MemoryPlan& plan) {
    std::int64_t bytes = 0;
    for (const MemoryPart& part : plan.parts)
      bytes += part.mapped ? 0 : static_cast<std::int64_t>(part.bytes);
    return bytes;
  }
  static std::size_t part(const MemoryPlan& plan, const std::string& name) {
    for (const MemoryPart& part : plan.parts)
      if (part.name == name) return part.bytes;
    ADD_FAILURE() << name << " is missing";
    return 0;
  }

  testing::TempDir dir_;
  ThreadPool pool_;
  OpContext context_;
  std::optional<ModelSource> source_;
};

TEST_F(Plan, PlentyOfMemoryGivesWhatIsAskedAndNoMoreThanIsUseful) {
  const MemoryPlan plan = this->plan({.max_sequences = 3}, kPlenty);
  EXPECT_EQ(plan.batch_tokens, 1024);
  EXPECT_EQ(plan.blocks, 3 * (4096 / 16 + 1));
  EXPECT_EQ(plan.max_context, 4096);
  const KvShape kv = kv_shape(source_->config, Precision::fp32, 16);
  EXPECT_EQ(part(plan, "KV cache"), static_cast<std::size_t>(plan.blocks) * kv.block_bytes());
  EXPECT_EQ(part(plan, "RoPE table"), Rope::table_bytes(source_->config.head_dim, 4096));
  EXPECT_EQ(plan.total(), static_cast<std::size_t>(held(plan)) + part(plan, "embedding (mapped)"));
}

TEST_F(Plan, AgreesWithTheDecoder) {
  const MemoryPlan plan = this->plan({.batch_tokens = 100}, kPlenty);
  const Decoder decoder(context_, open_source(dir_ / "m"), 100);
  EXPECT_EQ(part(plan, "activation buffers"), decoder.buffer_bytes());
  std::size_t packed = 0;
  for (const MemoryPart& part : weight_parts(source_->config, source_->weights))
    if (!part.mapped && part.name != "norms and heads") packed += part.bytes;
  EXPECT_EQ(packed, decoder.weight_bytes());
}

TEST_F(Plan, StaysWithinTheBudgetWhateverItIs) {
  const std::int64_t whole = held(plan({.max_sequences = 4}, kPlenty));
  std::int64_t smallest_batch = 1024;
  bool taken = false;
  for (std::int64_t bytes = kMemoryReserve; bytes < kMemoryReserve + 2 * whole; bytes += whole / 50) {
    try {
      const MemoryPlan plan = this->plan({.max_sequences = 4}, bytes);
      EXPECT_LE(held(plan) + kMemoryReserve, bytes);
      EXPECT_GE(plan.blocks, 1);
      taken = true;
      smallest_batch = std::min(smallest_batch, plan.batch_tokens);
    } catch (const Error& error) {
      EXPECT_FALSE(taken) << "a smaller budget was enough";
      EXPECT_NE(std::string(error.what()).find("a test's limit"), std::string::npos) << error.what();
    }
  }
  EXPECT_LT(smallest_batch, 1024);
  EXPECT_GE(smallest_batch, 16);
}

TEST_F(Plan, TheCacheAskedForIsGivenAndTheBatchMakesRoom) {
  const RunSize size{.batch_tokens = 8192, .kv_bytes = 8 * kMiB};
  const MemoryPlan wide = plan(size, kPlenty);
  const MemoryPlan narrow = plan(size, held(wide) + kMemoryReserve - 1);
  EXPECT_EQ(wide.batch_tokens, 8192);
  EXPECT_EQ(narrow.batch_tokens, 4096);
  EXPECT_EQ(narrow.blocks, wide.blocks);
  EXPECT_EQ(static_cast<std::int64_t>(part(wide, "KV cache")), 8 * kMiB);
}

TEST_F(Plan, RefusalsNameTheNumbersAndTheFix) {
  const std::string large = refusal({.kv_bytes = 512 * kMiB}, kMemoryReserve + 100 * kMiB);
  for (const char* words :
       {"512 MiB of KV cache", "164 MiB are left (a test's limit)", "--kv-memory ", "K is the most"})
    EXPECT_NE(large.find(words), std::string::npos) << large;
  // What it recommends is taken.
  const std::size_t at = large.find("--kv-memory ") + 12;
  const std::int64_t kib = std::stoll(large.substr(at));
  EXPECT_EQ(plan({.kv_bytes = kib * 1024}, kMemoryReserve + 100 * kMiB).batch_tokens, 16);

  const std::string none = refusal({}, kMemoryReserve);
  EXPECT_NE(none.find("raise the limit"), std::string::npos) << none;
  EXPECT_NE(refusal({.kv_bytes = 100}, kPlenty).find("hold no block"), std::string::npos);
}

TEST_F(Plan, ALongContextCostsWhatItsCacheCanHold) {
  source_->config.max_positions = 1 << 20;
  const MemoryPlan plan = this->plan({.kv_bytes = 4 * kMiB}, kPlenty);
  EXPECT_EQ(plan.max_context, plan.cached_tokens);
  EXPECT_LT(part(plan, "RoPE table"), std::size_t{4} << 20);
}

}  // namespace
}  // namespace asynct
