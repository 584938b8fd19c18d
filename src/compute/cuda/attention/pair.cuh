// Two blocks of a cluster that share keys and values (WarpgroupConfig::kPair).
#ifndef TALON_COMPUTE_CUDA_ATTENTION_PAIR_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_PAIR_CUH_

#include "compute/cuda/device/hopper.cuh"

namespace talon::cuda {

__device__ __forceinline__ int ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// Address in distributed shared memory (DSMEM), in block `rank`, of what is at `shared` in this
// block.
__device__ __forceinline__ uint32_t DsmemAddress(uint32_t shared, int rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  return remote;
}

// Arrives at the mbarrier of block `rank`.
__device__ __forceinline__ void MbarrierArriveRemote(uint32_t barrier, int rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(DsmemAddress(barrier, rank))
               : "memory");
}
// Copies `bytes` of this block's shared memory to the same place in block `rank`, and completes
// them there at the same mbarrier.
__device__ __forceinline__ void CopyToBlock(uint32_t shared, int bytes, uint32_t barrier,
                                            int rank) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(DsmemAddress(shared, rank)),
      "r"(shared), "r"(bytes), "r"(DsmemAddress(barrier, rank))
      : "memory");
}
// TMA multicast: loads a box into both blocks of a pair, at the same offset and with the same
// mbarrier of their shared memory.
__device__ __forceinline__ void TmaLoadBoxMulticast(const CUtensorMap& map, int col, int row,
                                                    uint32_t shared, uint32_t barrier) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
      "multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(&map), "r"(col), "r"(row), "r"(barrier), "h"(kBoth)
      : "memory");
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_PAIR_CUH_
