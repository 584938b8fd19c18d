// PTX instructions of sm_90 and sm_90a that CUDA C++ does not wrap: mbarriers, TMA loads, cluster
// barriers and wgmma. Shared memory is passed as 32-bit shared-window addresses (SharedAddress).
#ifndef TALON_COMPUTE_CUDA_DEVICE_HOPPER_CUH_
#define TALON_COMPUTE_CUDA_DEVICE_HOPPER_CUH_

#include <cuda.h>

#include <cstdint>

namespace talon::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// ---- mbarriers and named barriers ----

__device__ __forceinline__ void MbarrierInit(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised mbarriers visible to the async proxy (TMA) and to the cluster.
__device__ __forceinline__ void FenceMbarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void MbarrierArrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives and adds `bytes` to the phase's transaction count: the phase completes when the copies
// have delivered them.
__device__ __forceinline__ void MbarrierArriveExpectTx(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void MbarrierExpectTx(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Spins until the mbarrier's phase with this parity has completed.
__device__ __forceinline__ void MbarrierWait(uint32_t barrier, uint32_t parity) {
  uint32_t over = 0;
  do {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}\n"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (over == 0);
}

// Named barrier `id` of `count` threads in all: those that wait (bar.sync) and those that only
// arrive (bar.arrive).
__device__ __forceinline__ void NamedBarrierSync(int id, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}
__device__ __forceinline__ void NamedBarrierArrive(int id, int count) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// Waits like NamedBarrierSync; returns whether `value` holds for any of the threads.
__device__ __forceinline__ bool NamedBarrierAny(int id, int count, bool value) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred own, all;\n"
      "setp.ne.u32 own, %3, 0;\n"
      "bar.red.or.pred all, %1, %2, own;\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}\n"
      : "=r"(any)
      : "r"(id), "r"(count), "r"(value ? 1 : 0)
      : "memory");
  return any != 0;
}

// ---- TMA: asynchronous box loads of a tensor map; elements out of bounds become zeros ----

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void TmaLoadBox(const CUtensorMap& map, int col, int row,
                                           uint32_t shared, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(shared),
      "l"(&map), "r"(col), "r"(row), "r"(barrier)
      : "memory");
}

// Loads a box of a SlicedMatrix (runtime/tensor_map.h).
__device__ __forceinline__ void TmaLoadSlices(const CUtensorMap& map, int row, int slice,
                                              uint32_t shared, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %2, %4}], [%5];" ::"r"(shared),
      "l"(&map), "r"(0), "r"(row), "r"(slice), "r"(barrier)
      : "memory");
}

// Loads `bytes` contiguous bytes; all three are multiples of 16.
__device__ __forceinline__ void BulkLoad(const void* from, int bytes, uint32_t shared,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// ---- Cluster barrier ----

// Waits for every thread of every block. Writes before it are visible after it.
__device__ __forceinline__ void ClusterSync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- wgmma: asynchronous matrix multiply-accumulate of a warpgroup ----

// Orders register accesses to accumulators before the wgmma instructions that follow.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void WgmmaCommitGroup() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending committed wgmma groups are pending.
template <int kPending>
__device__ __forceinline__ void WgmmaWaitGroup() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// setmaxnreg: raises or lowers the registers per thread of a warpgroup. The producer releases
// registers that the consumers allocate.
template <int Registers>
__device__ __forceinline__ void SetMaxNRegInc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void SetMaxNRegDec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Orders this thread's earlier accesses to shared memory before later ones by the async proxy
// (wgmma and TMA).
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Compiler barrier on the accumulators: no access to them moves across it.
template <int kCount>
__device__ __forceinline__ void PinAccumulators(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_DEVICE_HOPPER_CUH_
