// Kernel launches and error checks. Included by CUDA sources only.
//
// All kernels of the backend run on one stream with programmatic dependent launch (PDL): a kernel
// may start while its predecessor still runs, does what needs none of its results (read weights,
// for example), and then waits in PdlWait. Each kernel allows its successor to start early with
// PdlTrigger. Both are empty before sm_90.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_LAUNCH_H_
#define TALON_COMPUTE_CUDA_RUNTIME_LAUNCH_H_

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/contain.h"

namespace talon::cuda {

[[noreturn]] inline void DeviceFailed(const char* call, cudaError_t error) {
  throw DeviceFault(std::string("cuda: ") + call + ": " + cudaGetErrorString(error) + " (" +
                    cudaGetErrorName(error) + ")");
}

#define TALON_CUDA_CHECK(call)                                                                 \
  do {                                                                                         \
    const cudaError_t talon_cuda_error = (call);                                               \
    if (talon_cuda_error != cudaSuccess) ::talon::cuda::DeviceFailed(#call, talon_cuda_error); \
  } while (false)

// Tests make launches fail with this.
inline std::atomic<cudaError_t> injected_launch_error{cudaSuccess};

class RankLink;

// The stream that work is queued on, and limits of its device.
struct Stream {
  cudaStream_t handle = nullptr;
  int device = 0;           // as CUDA counts them
  bool uses_pdl = false;    // kernels overlap by programmatic dependent launch (sm_90 and newer)
  int multiprocessors = 1;  // as many as kernels may count on
  // As many as the device has: the order of additions may depend on these alone.
  int all_multiprocessors = 1;
  int shared_memory = 48 * 1024;  // bytes that a block may have
  RankLink* link = nullptr;       // exchanges by which its kernels wait for other ranks
};

// CUDA's current device belongs to the thread, and is the first one in a new thread: whatever
// launches kernels, allocates or creates events makes it the stream's.
inline thread_local int current_device = 0;
inline void UseDevice(const Stream& stream) {
  if (current_device == stream.device) return;
  TALON_CUDA_CHECK(cudaSetDevice(stream.device));
  current_device = stream.device;
}

#ifdef __CUDACC__
// PDL: waits until the preceding kernels have completed and their writes are visible
// (griddepcontrol.wait).
__device__ __forceinline__ void PdlWait() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// PDL: lets the next kernel start once all blocks have called this or exited
// (griddepcontrol.launch_dependents).
__device__ __forceinline__ void PdlTrigger() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Launches with PDL, if the stream uses it, in thread block clusters of `cluster` blocks, which
// must divide the grid.
template <typename... Params, typename... Args>
void LaunchClusters(const Stream& stream, void (*kernel)(Params...), unsigned cluster, dim3 grid,
                    dim3 block, size_t shared_bytes, Args&&... args) {
  UseDevice(stream);
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.handle;
  config.attrs = attributes;
  if (stream.uses_pdl) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {cluster, 1, 1};
  }
  TALON_CUDA_CHECK(injected_launch_error.load(std::memory_order_relaxed));
  TALON_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<std::decay_t<Params>>(args)...));
}

template <typename... Params, typename... Args>
void Launch(const Stream& stream, void (*kernel)(Params...), dim3 grid, dim3 block,
            size_t shared_bytes, Args&&... args) {
  LaunchClusters(stream, kernel, 1, grid, block, shared_bytes, std::forward<Args>(args)...);
}

// Opts a kernel in to more than 48 KiB of dynamic shared memory.
template <typename Kernel>
void AllowSharedMemory(Kernel* kernel, size_t bytes) {
  TALON_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(bytes)));
}
#endif  // __CUDACC__

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_LAUNCH_H_
