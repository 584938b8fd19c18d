// Launches of the attention kernels for one element type. Each type has its own source file,
// because they take long to compile.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_LAUNCH_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_LAUNCH_CUH_

#include "base/math.h"
#include "compute/cuda/attention/attention.h"
#include "compute/cuda/attention/plan.h"
#include "compute/cuda/attention/prefix.cuh"
#include "compute/cuda/attention/tail.cuh"
#include "compute/cuda/attention/warpgroup.cuh"
#include "compute/cuda/attention/window.cuh"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/runtime/tensor_map.h"

namespace talon::cuda {

inline constexpr int kMaxTailHeads = 16;

void LaunchAttentionBF16(const Stream& stream, const AttentionArgs& args);
void LaunchAttentionF16(const Stream& stream, const AttentionArgs& args);
void LaunchAttentionFp8(const Stream& stream, const AttentionArgs& args);
void LaunchAttentionInt8(const Stream& stream, const AttentionArgs& args);

// The variants of the prefix kernel by tile of queries. A warp takes 32 queries in the largest
// tile, which halves its reads of shared memory.
template <typename T, int Dim, int Queries>
struct PrefixVariant;
template <typename T, int Dim>
struct PrefixVariant<T, Dim, 16> {
  using Config = TileConfig<T, Dim, 1, 4, 1, kTileStages>;
};
template <typename T, int Dim>
struct PrefixVariant<T, Dim, 32> {
  using Config = TileConfig<T, Dim, 2, 2, 1, kTileStages>;
};
template <typename T, int Dim>
struct PrefixVariant<T, Dim, 64> {
  using Config = TileConfig<T, Dim, 4, 1, 1, kTileStages>;
};
template <typename T, int Dim>
struct PrefixVariant<T, Dim, 128> {
  using Config = TileConfig<T, Dim, 4, 1, 2, kTileStages>;
};

template <typename T, int Dim, int Queries>
void LaunchPrefix(const Stream& stream, const AttentionArgs& args) {
  using Config = typename PrefixVariant<T, Dim, Queries>::Config;
  static_assert(sizeof(SharedTile<Config>) <= TileSharedBytes(Queries, Dim));
  constexpr int kBlocks = PrefixBlocks(Queries, Dim);
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
  KvTensorMaps maps = {};
  if constexpr (!Config::kExpands) maps = MakeKvTensorMaps<T>(args);  // TMA cannot expand codes
  constexpr int kCluster = kPair ? 2 : 1;
  const int blocks = max(1, stream.multiprocessors / kCluster) * kCluster;  // one per SM
  LaunchClusters(stream, kernel, kCluster, blocks, Config::kThreads, kShared, args, maps);
}

// Launches a kernel whose blocks have a row and some query heads of a kv head each.
inline void LaunchByRow(const Stream& stream, void (*kernel)(AttentionArgs), int threads,
                        size_t shared, AttentionArgs args) {
  // With few rows, one block per query head, so that many merge in parallel.
  const bool few = args.plan.rows * args.kv_heads * args.group <= stream.multiprocessors;
  args.tail_heads = few ? 1 : min(args.group, kMaxTailHeads);
  const int parts = CeilDiv(args.group, args.tail_heads);
  Launch(stream, kernel, dim3(args.plan.rows, args.kv_heads * parts), threads, shared, args);
}

// Launches TailKernel or WindowKernel.
template <typename Config, void (*Kernel)(AttentionArgs)>
void LaunchTiles(const Stream& stream, const AttentionArgs& args) {
  const size_t shared = sizeof(SharedTile<Config>) + args.plan.mask_words * 64 * sizeof(int32_t);
  static size_t allowed = 0;
  if (shared > allowed) {
    AllowSharedMemory(Kernel, shared);
    allowed = shared;
  }
  LaunchByRow(stream, Kernel, Config::kThreads, shared, args);
}

template <typename T, int Dim>
void LaunchPrefixOf(const Stream& stream, const AttentionArgs& args) {
  const bool warpgroups = args.plan.kernel == PrefixKernelKind::kWarpgroups;
  constexpr bool kHasWarpgroups = Dim <= 128;
  switch (args.plan.tile_queries) {
    case 16:
      return LaunchPrefix<T, Dim, 16>(stream, args);
    case 32:
      return LaunchPrefix<T, Dim, 32>(stream, args);
    case 64:
      if constexpr (kHasWarpgroups) {
        if (warpgroups) return LaunchWarpgroups<T, Dim, 64>(stream, args);
      }
      return LaunchPrefix<T, Dim, 64>(stream, args);
    case 128:
      if constexpr (kHasWarpgroups) {
        if (warpgroups) return LaunchWarpgroups<T, Dim, 128>(stream, args);
      }
      if constexpr (Dim <= 128) LaunchPrefix<T, Dim, 128>(stream, args);
      return;
    default:
      if constexpr (kHasWarpgroups) LaunchWarpgroups<T, Dim, 256>(stream, args);
  }
}

template <typename T, int Dim>
void LaunchForDim(const Stream& stream, const AttentionArgs& args) {
  using Config = TileConfig<T, Dim, 1, 4, 1, kTileStages>;
  if (args.window > 0) return LaunchTiles<Config, WindowKernel<Config>>(stream, args);
  LaunchPrefixOf<T, Dim>(stream, args);
  if (args.plan.has_tails) return LaunchTiles<Config, TailKernel<Config>>(stream, args);
  constexpr int kThreads = Config::kThreads;
  const auto merge =
      args.plan.only_sections ? MergeSectionsKernel<kThreads> : MergeKernel<kThreads>;
  LaunchByRow(stream, merge, kThreads, 0, args);
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
