// The device that a model runs on, by the name the user gives it.
#ifndef TALON_SETUP_DEVICE_H_
#define TALON_SETUP_DEVICE_H_

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/ranks/ranks.h"
#include "setup/config.h"

namespace talon {

// "cpu", or "cuda" with the number of the device.
struct DeviceName {
  bool cuda = false;
  std::optional<int> index;  // none: the first, or for each rank of a machine its own
};

// "cpu", "cuda", "cuda:1".
Result<DeviceName> ParseDeviceName(const std::string& name);

// The number of the GPU for a rank: the one that is named, else one after the other. `local_rank`
// counts the ranks of a machine, which has `devices`.
int DeviceOfRank(const DeviceName& name, int local_rank, int devices);
// The most of a machine's `local_size` ranks that share a GPU.
int SharersOfDevice(const DeviceName& name, int local_size, int devices);

// The backend that config.device names; `ranks`: null, or those that the model is spread over.
Result<std::unique_ptr<Backend>> NewBackend(const Config& config, const Ranks* ranks = nullptr);

// What this build can run on: "cpu", "cpu (portable), cuda".
std::string BuildDevices();

}  // namespace talon

#endif  // TALON_SETUP_DEVICE_H_
