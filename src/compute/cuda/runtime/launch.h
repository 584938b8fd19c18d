// How kernels are started and errors are met. Included by CUDA sources only.
//
// Every kernel of the backend runs on one stream and is launched as a *dependent* of the one before
// it: it may start while that one still runs, do what needs none of its results (read weights, for
// example), and waits in WaitForInputs. Each kernel lets the next one start early with
// LetNextStart. Both do nothing before sm_90.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_LAUNCH_H_
#define TALON_COMPUTE_CUDA_RUNTIME_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace talon::cuda {

#define TALON_CUDA_CHECK(call)                                                             \
  do {                                                                                     \
    const cudaError_t talon_cuda_error = (call);                                           \
    TALON_CHECK(talon_cuda_error == cudaSuccess, "cuda: {}: {} ({})", #call,               \
                cudaGetErrorString(talon_cuda_error), cudaGetErrorName(talon_cuda_error)); \
  } while (false)

// The stream that work goes to, and whether its kernels may overlap (sm_90 and newer).
struct Stream {
  cudaStream_t handle = nullptr;
  bool uses_pdl = false;
  int multiprocessors = 1;
  int shared_memory = 48 * 1024;  // bytes that a block may have
};

#ifdef __CUDACC__
__device__ __forceinline__ void PdlWait() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

__device__ __forceinline__ void PdlTrigger() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Blocks run in clusters of `cluster`, which divides their number.
template <typename... Params, typename... Args>
void LaunchClusters(const Stream& stream, void (*kernel)(Params...), unsigned cluster, dim3 grid,
                    dim3 block, size_t shared_bytes, Args&&... args) {
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
  TALON_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<std::decay_t<Params>>(args)...));
}

template <typename... Params, typename... Args>
void Launch(const Stream& stream, void (*kernel)(Params...), dim3 grid, dim3 block,
            size_t shared_bytes, Args&&... args) {
  LaunchClusters(stream, kernel, 1, grid, block, shared_bytes, std::forward<Args>(args)...);
}

// For kernels that use more shared memory than every device gives without asking.
template <typename Kernel>
void AllowSharedMemory(Kernel* kernel, size_t bytes) {
  TALON_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(bytes)));
}
#endif  // __CUDACC__

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_LAUNCH_H_
