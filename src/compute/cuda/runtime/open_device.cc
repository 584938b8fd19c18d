#include "compute/cuda/runtime/open_device.h"

namespace talon::cuda {
namespace {

constexpr int kOldestCapability = 80;

std::string VersionName(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Status Explain(cudaError_t error, const std::string& doing) {
  cudaGetLastError();  // clears the error for the next call
  int driver = 0;
  cudaDriverGetVersion(&driver);
  switch (error) {
    case cudaErrorNoDevice:
      return Unavailable(
          "cuda: no NVIDIA GPU is visible (CUDA_VISIBLE_DEVICES?); use --device cpu");
    case cudaErrorInsufficientDriver:
      if (driver == 0) return Unavailable("cuda: no NVIDIA driver is installed; use --device cpu");
      return Unavailable(
          "cuda: the driver supports CUDA {}, this build needs {}; update the driver",
          VersionName(driver), VersionName(CUDART_VERSION));
    case cudaErrorDevicesUnavailable:
      return Unavailable("cuda: the GPU is held by another process or in exclusive mode ({})",
                         doing);
    case cudaErrorMemoryAllocation:
      return ResourceExhausted("cuda: no memory left on the GPU, other processes use it ({})",
                               doing);
    default:
      return Unavailable("cuda: {}: {} ({})", doing, cudaGetErrorString(error),
                         cudaGetErrorName(error));
  }
}

}  // namespace

Result<Device> OpenDevice(int index) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return Explain(error, "counting devices");
  if (index < 0 || index >= count) {
    return InvalidArgument("cuda: device {}, there {} {} (0 to {})", index,
                           count == 1 ? "is" : "are", count, count - 1);
  }
  cudaDeviceProp properties;
  error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) return Explain(error, "reading the device's properties");
  const int capability = 10 * properties.major + properties.minor;
  if (capability < kOldestCapability) {
    return InvalidArgument("cuda: {} has compute capability {}.{}, Talon needs 8.0 or newer",
                           properties.name, properties.major, properties.minor);
  }
  error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaFree(nullptr);  // creates the context
  if (error != cudaSuccess) return Explain(error, "opening the device");
  current_device = index;
  Device device;
  device.stream.device = index;
  device.name = fmt::format("{} (sm_{}, {:.1f} GiB)", properties.name, capability,
                            static_cast<double>(properties.totalGlobalMem) / (1 << 30));
  device.stream.uses_pdl = capability >= 90;
  device.stream.multiprocessors = properties.multiProcessorCount;
  device.stream.all_multiprocessors = properties.multiProcessorCount;
  device.stream.shared_memory = static_cast<int>(properties.sharedMemPerBlockOptin);
  error = cudaStreamCreateWithFlags(&device.stream.handle, cudaStreamNonBlocking);
  if (error != cudaSuccess) return Explain(error, "creating a stream");
  return device;
}

void CloseDevice(const Device& device) {
  cudaStreamSynchronize(device.stream.handle);
  cudaStreamDestroy(device.stream.handle);
}

}  // namespace talon::cuda
