// The device that a model runs on, by the name the user gives it.
#ifndef TALON_SETUP_DEVICE_H_
#define TALON_SETUP_DEVICE_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "compute/backend.h"
#include "setup/config.h"

namespace talon {

// "cpu", or "cuda" with the number of the device.
struct DeviceName {
  bool cuda = false;
  int index = 0;
};

// "cpu", "cuda", "cuda:1".
Result<DeviceName> ParseDeviceName(const std::string& name);

// The backend that config.device names.
Result<std::unique_ptr<Backend>> NewBackend(const Config& config);

// What this build can run on: "cpu", "cpu (portable), cuda".
std::string BuildDevices();

}  // namespace talon

#endif  // TALON_SETUP_DEVICE_H_
