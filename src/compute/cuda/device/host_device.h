// Functions that both the host, where tests are, and kernels call.
#ifndef TALON_COMPUTE_CUDA_DEVICE_HOST_DEVICE_H_
#define TALON_COMPUTE_CUDA_DEVICE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TALON_HOST_DEVICE __host__ __device__
#else
#define TALON_HOST_DEVICE
#endif

#endif  // TALON_COMPUTE_CUDA_DEVICE_HOST_DEVICE_H_
