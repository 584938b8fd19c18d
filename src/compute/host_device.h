// Qualifier of functions that are compiled for both the host (unit tests) and the device.
#ifndef TALON_COMPUTE_HOST_DEVICE_H_
#define TALON_COMPUTE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TALON_HOST_DEVICE __host__ __device__
#else
#define TALON_HOST_DEVICE
#endif

#endif  // TALON_COMPUTE_HOST_DEVICE_H_
