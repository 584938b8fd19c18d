// The device that tests above the ops run on: the CPU, or a GPU where TALON_TEST_DEVICE says so.
#ifndef TALON_COMPUTE_TEST_DEVICE_H_
#define TALON_COMPUTE_TEST_DEVICE_H_

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cuda/cuda_backend.h"

namespace talon {

inline bool TestDeviceIsHost() {
  const char* device = std::getenv("TALON_TEST_DEVICE");
  return device == nullptr || std::string_view(device) == "cpu";
}

// TALON_TEST_DEVICE=cuda: the GPU, whatever the number of threads.
// `sharers`: backends of this process that compute at the same time.
inline std::unique_ptr<Backend> NewTestBackend(int threads, int sharers = 1) {
  if (TestDeviceIsHost()) return NewCpuBackend(threads);
  auto backend = NewCudaBackend({.sharers = sharers});
  TALON_CHECK(backend.ok(), "{}", backend.status().message());
  return std::move(backend).value();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Rounds of a random test: fewer on a GPU, where a tiny pass is all latency, and under a sanitizer,
// which finds in the first rounds what it would find in the others.
inline int TestRounds(int rounds) {
  return kSanitized || !TestDeviceIsHost() ? rounds / 8 + 1 : rounds;
}

}  // namespace talon

#endif  // TALON_COMPUTE_TEST_DEVICE_H_
