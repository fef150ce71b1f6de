// What blocks of a cluster, blocks of a grid and kernels of a stream do with one another.

#include <numeric>
#include <vector>

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/cluster.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/cuda/tensor_map.h"
#include "asynct/ops/cuda/tile_testing.cuh"
#include "asynct/ops/cuda/tma.cuh"

namespace asynct::cuda {
namespace {

constexpr int kBlocks = 4;  // of a cluster
constexpr int kThreads = 64;

// --- Clusters ---

/// Each block reads what the next one wrote late, and counts its threads in block 0's memory.
__global__ void __cluster_dims__(kBlocks) read_the_next_block(std::uint32_t* out, std::uint32_t* count) {
  __shared__ std::uint32_t values[kThreads];
  __shared__ std::uint32_t counter;
  const std::uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) counter = 0;
  cluster_sync();
  if (rank == 1) dawdle();
  values[threadIdx.x] = 100 * rank + threadIdx.x;
  atomicAdd(in_block(&counter, 0), 1U);
  cluster_arrive();
  cluster_wait();
  out[blockIdx.x * kThreads + threadIdx.x] = in_block(values, (rank + 1) % kBlocks)[threadIdx.x];
  if (rank == 0 && threadIdx.x == 0) count[blockIdx.x / kBlocks] = counter;
  cluster_sync();
}

TEST(TileCluster, blocks_reach_each_others_memory) {
  const auto out = poisoned<std::uint32_t>(2 * kBlocks * kThreads);
  const auto count = poisoned<std::uint32_t>(2);
  read_the_next_block<<<2 * kBlocks, kThreads>>>(out.data(), count.data());
  check_launch("read_the_next_block");
  Words want;
  for (std::uint32_t block = 0; block < 2 * kBlocks; ++block)
    for (std::uint32_t i = 0; i < kThreads; ++i) want.push_back(100 * ((block + 1) % kBlocks) + i);
  EXPECT_EQ(out.download(), want);
  EXPECT_EQ(count.download(), Words(2, kBlocks * kThreads));
}

/// Each block arrives at every block's barrier after it has raised its flag; how many flags are up then.
__global__ void __cluster_dims__(kBlocks) arrive_everywhere(std::uint32_t* flags, std::uint32_t* out) {
  __shared__ std::uint64_t barrier;
  const std::uint32_t rank = cluster_rank();
  const std::uint32_t all_here = shared_address(&barrier);
  if (threadIdx.x == 0) {
    barrier_init(all_here, kBlocks);
    barrier_init_fence();
  }
  __syncwarp();
  cluster_arrive_relaxed();
  cluster_wait();
  if (threadIdx.x == 0) {
    if (rank == 2) dawdle();
    atomicExch(flags + rank, 1U);
    __threadfence();
    for (std::uint32_t block = 0; block < kBlocks; ++block)
      barrier_arrive_cluster(cluster_address(all_here, block));
    barrier_wait(all_here, 0);
    __threadfence();
    std::uint32_t raised = 0;
    for (int block = 0; block < kBlocks; ++block) raised += atomicAdd(flags + block, 0U);
    out[rank] = raised;
  }
  cluster_sync();
}

TEST(TileCluster, barriers_count_arrivals_from_other_blocks) {
  const DeviceBuffer<std::uint32_t> flags(Words(kBlocks, 0));
  const auto out = poisoned<std::uint32_t>(kBlocks);
  arrive_everywhere<<<kBlocks, kThreads>>>(flags.data(), out.data());
  check_launch("arrive_everywhere");
  EXPECT_EQ(out.download(), Words(kBlocks, kBlocks));
}

constexpr int kShareBytes = 4352;  // sent from each block to each other
constexpr int kShare = kShareBytes / 4;

/// Each block sends a share of its words to the others and gives out what it got.
__global__ void __cluster_dims__(kBlocks) send_shares(std::uint32_t* out) {
  __shared__ alignas(128) std::uint32_t own[kBlocks * kShare];
  __shared__ alignas(128) std::uint32_t received[kBlocks * kShare];
  __shared__ std::uint64_t barrier;
  const std::uint32_t rank = cluster_rank();
  const std::uint32_t full = shared_address(&barrier);
  for (int i = static_cast<int>(threadIdx.x); i < kBlocks * kShare; i += kThreads) {
    own[i] = rank << 16 | i;
    received[i] = kPoisonWord;
  }
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init_fence();
  }
  fence_async_shared();
  cluster_sync();
  if (threadIdx.x == 0) barrier_arrive_expect(full, (kBlocks - 1) * kShareBytes);
  if (threadIdx.x < kBlocks && threadIdx.x != rank)
    copy_to_block(cluster_address(shared_address(received + rank * kShare), threadIdx.x),
                  shared_address(own + threadIdx.x * kShare), kShareBytes,
                  cluster_address(full, threadIdx.x));
  barrier_wait(full, 0);
  for (int i = static_cast<int>(threadIdx.x); i < kBlocks * kShare; i += kThreads)
    out[rank * kBlocks * kShare + i] = received[i];
  cluster_sync();
}

TEST(TileCluster, shares_reach_the_other_blocks) {
  const auto out = poisoned<std::uint32_t>(kBlocks * kBlocks * kShare);
  send_shares<<<kBlocks, kThreads>>>(out.data());
  check_launch("send_shares");
  Words want;
  for (std::uint32_t to = 0; to < kBlocks; ++to)
    for (std::uint32_t from = 0; from < kBlocks; ++from)
      for (std::uint32_t i = 0; i < kShare; ++i)
        want.push_back(from == to ? kPoisonWord : from << 16 | (to * kShare + i));
  EXPECT_EQ(out.download(), want);
}

struct MulticastArgs {
  CUtensorMap map;
  std::uint16_t blocks = 0;
  std::uint16_t* out = nullptr;
};

/// Block 1 asks for a box of 8 rows on behalf of some blocks.
__global__ void __cluster_dims__(kBlocks) ask_for_others(const __grid_constant__ MulticastArgs args) {
  __shared__ alignas(1024) std::uint16_t box[512];
  __shared__ std::uint64_t barrier;
  const std::uint32_t rank = cluster_rank();
  const std::uint32_t full = shared_address(&barrier);
  for (int i = static_cast<int>(threadIdx.x); i < 512; i += kThreads) box[i] = 0xFFFF;
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init_fence();
    barrier_arrive_expect(full, (args.blocks >> rank & 1) * 1024);
  }
  fence_async_shared();
  cluster_sync();
  if (rank == 1 && threadIdx.x == 0)
    tma_load_multicast(shared_address(box), args.map, full, args.blocks, 0, 8, 0, 0, 0);
  barrier_wait(full, 0);
  cluster_sync();
  for (int i = static_cast<int>(threadIdx.x); i < 512; i += kThreads) args.out[rank * 512 + i] = box[i];
}

TEST(TileCluster, one_copy_reaches_the_blocks_named) {
  Halves memory(1024);
  std::iota(memory.begin(), memory.end(), 1);
  const DeviceBuffer<std::uint16_t> from(memory);
  const TensorMapShape shape = {
      .size = {64, 16, 1, 1, 1}, .stride = {128, 2048, 2048, 2048}, .box = {64, 8, 1, 1, 1}};
  const CUtensorMap map = make_tensor_map(from.data(), shape);
  for (const std::uint16_t blocks : {0b1111, 0b1001, 0b0010}) {
    const auto out = poisoned<std::uint16_t>(kBlocks * 512);
    ask_for_others<<<kBlocks, kThreads>>>({.map = map, .blocks = blocks, .out = out.data()});
    check_launch("ask_for_others");
    Halves want(kBlocks * 512, 0xFFFF);
    for (std::size_t i = 0; i < want.size(); ++i)
      if (blocks >> i / 512 & 1) want[i / 64 * 64 + ((i % 64) ^ (i / 64 % 8 * 8))] = memory[512 + i % 512];
    EXPECT_EQ(out.download(), want) << "blocks " << blocks;
  }
}

// --- Grids ---

struct StepArgs {
  const std::uint32_t* from = nullptr;
  std::uint32_t* to = nullptr;
};

constexpr std::uint32_t kCount = 8192;

/// to[i] = from[i + 1] + 1: the next block's values too, of which some come late.
__global__ void add_one(StepArgs args) {
  launch_dependents();
  wait_for_launcher();
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (blockIdx.x % 8 == 0) dawdle();
  args.to[i] = args.from[(i + 1) % kCount] + 1;
}

TEST(TileGrid, overlapped_kernels_see_what_the_one_before_wrote) {
  constexpr std::uint32_t kKernels = 40;
  Words first(kCount);
  std::iota(first.begin(), first.end(), 7);
  const DeviceBuffer<std::uint32_t> even(first);
  const auto odd = poisoned<std::uint32_t>(kCount);
  for (std::uint32_t k = 0; k < kKernels; ++k) {
    const StepArgs args = k % 2 == 0 ? StepArgs{even.data(), odd.data()} : StepArgs{odd.data(), even.data()};
    launch_overlapped(add_one, "add_one", dim3(kCount / 256), dim3(256), args, nullptr);
  }
  Words want(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) want[i] = first[(i + kKernels) % kCount] + kKernels;
  EXPECT_EQ(even.download(), want);
}

/// The block that is last to arrive adds up what all of them wrote.
__global__ void add_up(std::uint32_t* values, std::uint32_t* counter, std::uint32_t* out) {
  __shared__ std::uint32_t before;
  if (blockIdx.x % 16 == 0) dawdle();
  values[blockIdx.x * kThreads + threadIdx.x] = blockIdx.x + threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) before = fetch_add_acq_rel(counter, 1);
  __syncthreads();
  if (before != gridDim.x - 1) return;
  std::uint32_t sum = 0;
  for (std::uint32_t i = threadIdx.x; i < gridDim.x * kThreads; i += kThreads) sum += values[i];
  atomicAdd(out, sum);
  if (threadIdx.x == 0) *counter = 0;
}

TEST(TileGrid, last_block_to_arrive_sees_all_others_writes) {
  constexpr std::uint32_t kGrid = 200;
  const auto values = poisoned<std::uint32_t>(kGrid * kThreads);
  const DeviceBuffer<std::uint32_t> counter(Words(1, 0));
  std::uint32_t want = 0;
  for (std::uint32_t i = 0; i < kGrid * kThreads; ++i) want += i / kThreads + i % kThreads;
  for (int round = 0; round < 20; ++round) {
    const DeviceBuffer<std::uint32_t> out(Words(1, 0));
    check(cudaMemset(values.data(), 0xFF, 4 * values.size()), "cudaMemset");
    add_up<<<kGrid, kThreads>>>(values.data(), counter.data(), out.data());
    check_launch("add_up");
    EXPECT_EQ(out.download(), Words(1, want));
  }
  EXPECT_EQ(counter.download(), Words(1, 0));
}

}  // namespace
}  // namespace asynct::cuda
