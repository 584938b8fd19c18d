// Launches of the attention kernels for one element type. Each type has its own source file,
// because they take long to compile.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_LAUNCH_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_LAUNCH_CUH_

#include <bit>

#include "compute/cuda/attention/attention.h"
#include "compute/cuda/attention/few.cuh"
#include "compute/cuda/attention/plan.h"
#include "compute/cuda/attention/prefix.cuh"
#include "compute/cuda/attention/tail.cuh"
#include "compute/cuda/attention/warpgroup.cuh"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/runtime/tensor_map.h"

namespace talon::cuda {

inline constexpr int kMaxTailHeads = 16;

void LaunchAttentionBF16(const Stream& stream, const AttentionArgs& args);
void LaunchAttentionF16(const Stream& stream, const AttentionArgs& args);
// Merges the partials of spans.
void LaunchMerge(const Stream& stream, const AttentionArgs& args);

// The variants of the prefix kernel by tile of queries. A warp takes 32 queries in the largest
// tile, which halves its reads of shared memory.
template <typename T, int Dim, int Queries>
struct PrefixVariant;
template <typename T, int Dim>
struct PrefixVariant<T, Dim, 16> {
  using Config = TileConfig<T, Dim, 1, 4, 1, TileStages(16, Dim)>;
};
template <typename T, int Dim>
struct PrefixVariant<T, Dim, 32> {
  using Config = TileConfig<T, Dim, 2, 2, 1, TileStages(32, Dim)>;
};
template <typename T, int Dim>
struct PrefixVariant<T, Dim, 64> {
  using Config = TileConfig<T, Dim, 4, 1, 1, TileStages(64, Dim)>;
};
template <typename T, int Dim>
struct PrefixVariant<T, Dim, 128> {
  using Config = TileConfig<T, Dim, 4, 1, 2, TileStages(128, Dim)>;
};

template <typename T, int Dim, int Queries>
void LaunchPrefix(const Stream& stream, const AttentionArgs& args) {
  using Config = typename PrefixVariant<T, Dim, Queries>::Config;
  static_assert(sizeof(SharedTile<Config>) <= TileSharedBytes(Queries, Dim));
  constexpr int kBlocks = PrefixBlocks(Dim);
  constexpr size_t kShared = sizeof(SharedTile<Config>);
  const auto kernel = &PrefixKernel<Config, kBlocks>;
  static const int resident = [&] {
    AllowSharedMemory(kernel, kShared);
    int blocks = 0;
    TALON_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, Config::kThreads, kShared));
    return min(blocks, kBlocks);
  }();
  TALON_CHECK(resident > 0);
  Launch(stream, kernel, resident * stream.multiprocessors, Config::kThreads, kShared, args);
}

// TMA is used for device memory only, and a box must not cross the end of a block.
template <typename T>
KvTensorMaps MakeKvTensorMaps(const AttentionArgs& args) {
  KvTensorMaps maps = {};
  cudaPointerAttributes attributes;
  TALON_CUDA_CHECK(cudaPointerGetAttributes(&attributes, args.k_blocks));
  if (attributes.type != cudaMemoryTypeDevice || (1 << args.block_shift) < kBoxKeys) return maps;
  BoxedMatrix matrix = {
      .data = args.k_blocks,
      .dtype = std::is_same_v<T, __half> ? DType::kF16 : DType::kBF16,
      .rows = args.block_vectors,
      .cols = args.head_dim,
      .stride = args.head_dim,
      .box_rows = kBoxKeys,
  };
  maps.exist = MakeTensorMap(matrix, &maps.keys);
  matrix.data = args.v_blocks;
  maps.exist = maps.exist && MakeTensorMap(matrix, &maps.values);
  return maps;
}

// Number of clusters of `blocks` blocks that are resident at one block per SM.
template <typename Config>
int CountClusters(int blocks) {
  const auto kernel = &FewQueriesKernel<Config>;
  constexpr size_t kShared = sizeof(FewShared<Config>) + kPanelAlignment;
  AllowSharedMemory(kernel, kShared);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(blocks);
  config.blockDim = Config::kThreads;
  config.dynamicSmemBytes = kShared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  TALON_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return clusters;
}

// Launches a kernel with one block per SM, in the plan's clusters.
template <typename T>
void LaunchHopper(const Stream& stream, void (*kernel)(AttentionArgs, KvTensorMaps), int threads,
                  size_t shared, const AttentionArgs& args) {
  const int cluster = args.plan.cluster;
  const int clusters = AttentionClusters()[std::countr_zero(static_cast<unsigned>(cluster))];
  const int blocks = max(1, clusters) * cluster;
  LaunchClusters(stream, kernel, cluster, blocks, threads, shared, args, MakeKvTensorMaps<T>(args));
}

template <typename T, int Dim, int Queries>
void LaunchFew(const Stream& stream, const AttentionArgs& args) {
  using Config = FewConfig<T, Dim <= 64 ? 64 : 128, Queries / 16>;
  constexpr size_t kShared = sizeof(FewShared<Config>) + kPanelAlignment;
  static_assert(kShared <= FewSharedBytes(Queries, Dim));
  const auto kernel = &FewQueriesKernel<Config>;
  static const bool allowed = [&] {
    AllowSharedMemory(kernel, kShared);
    return true;
  }();
  TALON_CHECK(allowed);
  LaunchHopper<T>(stream, kernel, Config::kThreads, kShared, args);
}

template <typename T, int Dim, int Queries>
void LaunchWarpgroups(const Stream& stream, const AttentionArgs& args) {
  constexpr bool kPair = Queries == 256;
  constexpr int kGroups = kPair ? 2 : Queries / 64;
  using Config = WarpgroupConfig<T, Dim <= 64 ? 64 : 128, kGroups, kPair>;
  constexpr size_t kShared = sizeof(WarpgroupShared<Config>) + kPanelAlignment;
  static_assert(kShared <= WarpgroupSharedBytes(kGroups, Dim));
  const auto kernel = &WarpgroupKernel<Config>;
  static const bool allowed = [&] {
    AllowSharedMemory(kernel, kShared);
    return true;
  }();
  TALON_CHECK(allowed);
  LaunchHopper<T>(stream, kernel, Config::kThreads, kShared, args);
}

template <typename T, int Dim>
void LaunchTail(const Stream& stream, AttentionArgs args) {
  using Config = TileConfig<T, Dim, 1, 4, 1, 2>;
  const auto kernel = &TailKernel<Config>;
  const size_t shared = sizeof(SharedTile<Config>) + args.plan.mask_words * 64 * sizeof(int32_t);
  static size_t allowed = 0;
  if (shared > allowed) {
    AllowSharedMemory(kernel, shared);
    allowed = shared;
  }
  // With few rows, one block per query head, so that many merge in parallel.
  const bool few = args.plan.rows * args.kv_heads < stream.multiprocessors;
  args.tail_heads = few ? 1 : min(args.group, kMaxTailHeads);
  const int parts = (args.group + args.tail_heads - 1) / args.tail_heads;
  Launch(stream, kernel, dim3(args.plan.rows, args.kv_heads * parts), Config::kThreads, shared,
         args);
}

template <typename T, int Dim>
void LaunchOnHopper(const Stream& stream, const AttentionArgs& args) {
  switch (args.plan.tile_queries) {
    case 16:
      return LaunchFew<T, Dim, 16>(stream, args);
    case 32:
      return LaunchFew<T, Dim, 32>(stream, args);
    case 64:
      return LaunchWarpgroups<T, Dim, 64>(stream, args);
    case 128:
      return LaunchWarpgroups<T, Dim, 128>(stream, args);
    default:
      return LaunchWarpgroups<T, Dim, 256>(stream, args);
  }
}

template <typename T, int Dim>
void LaunchPrefixOf(const Stream& stream, const AttentionArgs& args) {
  if constexpr (Dim <= 128) {
    if (args.plan.kernel != PrefixKernelKind::kTiles) return LaunchOnHopper<T, Dim>(stream, args);
  }
  switch (args.plan.tile_queries) {
    case 16:
      return LaunchPrefix<T, Dim, 16>(stream, args);
    case 32:
      return LaunchPrefix<T, Dim, 32>(stream, args);
    case 64:
      return LaunchPrefix<T, Dim, 64>(stream, args);
    default:
      if constexpr (Dim <= 128) LaunchPrefix<T, Dim, 128>(stream, args);
  }
}

template <typename T, int Dim>
void LaunchForDim(const Stream& stream, const AttentionArgs& args) {
  LaunchPrefixOf<T, Dim>(stream, args);
  if (!args.plan.spans) return LaunchTail<T, Dim>(stream, args);
  if (!args.plan.merges_in_place) LaunchMerge(stream, args);
}

template <typename T>
void LaunchForType(const Stream& stream, const AttentionArgs& args) {
  switch (PaddedHeadDim(args.head_dim)) {
    case 64:
      return LaunchForDim<T, 64>(stream, args);
    case 96:
      return LaunchForDim<T, 96>(stream, args);
    case 128:
      return LaunchForDim<T, 128>(stream, args);
    default:
      return LaunchForDim<T, 256>(stream, args);
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_LAUNCH_CUH_
