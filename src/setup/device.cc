#include "setup/device.h"

#include <charconv>
#include <string_view>

#include "base/math.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cuda/cuda_backend.h"

namespace talon {

Result<DeviceName> ParseDeviceName(const std::string& name) {
  constexpr std::string_view kNumbered = "cuda:";
  if (name == "cpu") return DeviceName{};
  if (name == "cuda") return DeviceName{.cuda = true};
  if (name.starts_with(kNumbered)) {
    int index = -1;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kNumbered.size(), end, index);
    if (error == std::errc() && stop == end && index >= 0) {
      return DeviceName{.cuda = true, .index = index};
    }
  }
  return InvalidArgument("device: '{}', must be cpu, cuda or cuda:N", name);
}

int DeviceOfRank(const DeviceName& name, int local_rank, int devices) {
  return name.index.value_or(devices == 0 ? 0 : local_rank % devices);
}

int SharersOfDevice(const DeviceName& name, int local_size, int devices) {
  return name.index.has_value() || devices == 0 ? local_size : CeilDiv(local_size, devices);
}

Result<std::unique_ptr<Backend>> NewBackend(const Config& config, const Ranks* ranks) {
  TALON_ASSIGN_OR_RETURN(const DeviceName device, ParseDeviceName(config.device));
  if (!device.cuda) return NewCpuBackend(config.threads, config.touch_memory, !config.disable_amx);
  CudaOptions options{.device = device.index.value_or(0), .graphs = !config.disable_cuda_graph};
  if (ranks != nullptr) {
    const int devices = NumCudaDevices();
    options.device = DeviceOfRank(device, ranks->local_rank(), devices);
    options.sharers = SharersOfDevice(device, ranks->local_size(), devices);
  }
  auto backend = NewCudaBackend(options);
  if (!backend.ok()) return backend.status().WithContext("device: " + config.device);
  return backend;
}

std::string BuildDevices() { return TALON_DEVICES; }

}  // namespace talon
