// Opens a CUDA device, with errors that say what is wrong and what to do.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_OPEN_DEVICE_H_
#define TALON_COMPUTE_CUDA_RUNTIME_OPEN_DEVICE_H_

#include <string>

#include "base/status.h"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

struct Device {
  std::string name;  // "NVIDIA H200 (sm_90, 139.8 GiB)"
  Stream stream;
};

Result<Device> OpenDevice(int index);
void CloseDevice(const Device& device);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_OPEN_DEVICE_H_
