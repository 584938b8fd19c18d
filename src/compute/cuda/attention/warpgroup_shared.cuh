// The variants of WarpgroupKernel (attention/warpgroup.cuh), and the shared memory in which its
// producer and consumer warps meet.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_SHARED_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_SHARED_CUH_

#include "compute/cuda/attention/item.cuh"
#include "compute/cuda/attention/pair.cuh"
#include "compute/cuda/attention/warpgroup_layout.h"
#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/device/kv_codes.cuh"

namespace talon::cuda {

template <typename Element, int Dim, int Groups, bool Pair = false>
struct WarpgroupConfig {
  using Stored = Element;  // the cache's
  using T = typename KvElement<Element>::Value;
  static constexpr bool kExpands = KvElement<Element>::kIsCode;
  static constexpr int kDim = Dim;        // head_dim, padded with zeros
  static constexpr int kGroups = Groups;  // consumer warpgroups, of 64 queries each
  static constexpr bool kPair = Pair;     // two blocks of a cluster have the same keys
  static constexpr int kQueries = 64 * Groups;
  // Producer warpgroups, and their warps for each operand.
  static constexpr int kProducers = kExpands && Groups == 1 ? 2 : 1;
  static constexpr int kFetchWarps = 2 * kProducers;
  static constexpr int kThreads = 128 * (Groups + kProducers);
  // Registers of a thread, if the warpgroups have different numbers of them.
  static constexpr bool kMovesRegisters = kThreads > 256;
  static constexpr int kConsumerRegisters = kExpands && Groups == 2 ? 200 : 232;
  static constexpr int kProducerRegisters = !kExpands ? 40 : Groups == 1 ? 136 : 104;
  static_assert(Groups * kConsumerRegisters + kProducers * kProducerRegisters <= 3 * 168);
  static constexpr int kStages = WarpgroupStages(Groups);
  // Whether a section's accumulators are kept until its last chunk.
  static constexpr bool kKeepsSections = KeptBytes(Groups, Dim) > 0;
  static constexpr int kMatrices = Dim / kPanelCols;
  static constexpr int kMatrixBytes = kStepKeys * kPanelRowBytes;
  static constexpr int kStageBytes = kMatrices * kMatrixBytes;
  static constexpr int kBoxes = kStepKeys / kBoxKeys * kMatrices;  // per stage
  // Arrivals that complete a stage: of portions of codes that the block expands, or of warps.
  static constexpr int kArrivals =
      kExpands ? kStepKeys / kPortionKeys / (Pair ? 2 : 1) : kFetchWarps;
  // Named barriers: for each consumer group one for its threads and one for its ping-pong turn.
  static constexpr int kGroupBarrier = 1;
  static constexpr int kPingPongBarrier = kGroupBarrier + Groups;
};

// The mbarriers of the stages of one operand (keys or values).
template <typename C>
struct Ring {
  uint64_t full[C::kStages];
  uint64_t empty[C::kStages];

  __device__ void Init() {
    for (int i = 0; i < C::kStages; ++i) {
      MbarrierInit(SharedAddress(&full[i]), C::kArrivals);
      MbarrierInit(SharedAddress(&empty[i]), 4 * C::kGroups * (C::kPair ? 2 : 1));
    }
  }
  // Steps are counted over all items of the block.
  __device__ void WaitFull(int step) const {
    MbarrierWait(SharedAddress(&full[step % C::kStages]), step / C::kStages % 2);
  }
  __device__ void WaitEmpty(int step) const {
    MbarrierWait(SharedAddress(&empty[step % C::kStages]), step / C::kStages % 2 ^ 1);
  }
  // Called by a consumer warp that has read the stage. In a pair the other block writes to it, too.
  // This block's mbarrier comes first: when the other block's has completed, so has this one's, and
  // no arrival of a later step can precede it.
  __device__ void Release(int step) const {
    const uint32_t barrier = SharedAddress(&empty[step % C::kStages]);
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    MbarrierArrive(barrier);
    if constexpr (C::kPair) MbarrierArriveRemote(barrier, ClusterRank() ^ 1);
  }
};

template <typename C>
struct WarpgroupShared {
  alignas(kPanelAlignment) uint8_t q[C::kMatrices * C::kQueries * kPanelRowBytes];
  alignas(kPanelAlignment) uint8_t k[C::kStages][C::kStageBytes];
  alignas(kPanelAlignment) uint8_t v[C::kStages][C::kStageBytes];
  QuerySlot queries[C::kQueries];
  int32_t vectors[2][C::kExpands ? 1 : kStepKeys];
  Ring<C> keys;
  Ring<C> values;
  // Four accumulators of each consumer thread side by side; the first four are in its registers.
  float4 kept[C::kKeepsSections ? C::kDim / 8 - 1 : 1][C::kKeepsSections ? 2 * C::kQueries : 1];
};

// Source and destination of one operand (keys or values).
template <typename C>
struct Operand {
  const CUtensorMap* map;  // tensor map of `blocks`, or null
  const void* blocks;
  const void* staged;
  const Ring<C>& ring;
  uint8_t (&stages)[C::kStages][C::kStageBytes];
  int32_t* vectors;  // [kStepKeys] vectors of a step that is copied with cp.async
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_SHARED_CUH_
