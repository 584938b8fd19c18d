#include "setup/device.h"

#include <charconv>
#include <string_view>

#include "compute/cpu/cpu_backend.h"
#include "compute/cuda/cuda_backend.h"

namespace talon {

Result<DeviceName> ParseDeviceName(const std::string& name) {
  constexpr std::string_view kNumbered = "cuda:";
  if (name == "cpu") return DeviceName{};
  if (name == "cuda") return DeviceName{.cuda = true};
  DeviceName device{.cuda = true};
  if (name.starts_with(kNumbered)) {
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kNumbered.size(), end, device.index);
    if (error == std::errc() && stop == end && device.index >= 0) return device;
  }
  return InvalidArgument("device: '{}', must be cpu, cuda or cuda:N", name);
}

Result<std::unique_ptr<Backend>> NewBackend(const Config& config) {
  TALON_ASSIGN_OR_RETURN(const DeviceName device, ParseDeviceName(config.device));
  if (!device.cuda) return NewCpuBackend(config.threads, config.touch_memory);
  auto backend = NewCudaBackend({.device = device.index, .graphs = !config.disable_cuda_graph});
  if (!backend.ok()) return backend.status().WithContext("device: " + config.device);
  return backend;
}

std::string BuildDevices() { return TALON_DEVICES; }

}  // namespace talon
