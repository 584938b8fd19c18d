// The safetensors parser on hostile files: whatever it accepts must lie inside the file.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "model/files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> file(data, size);
  const auto tensors = talon::ParseSafetensors(file, "fuzz");
  if (!tensors.ok()) return 0;
  for (const auto& [name, tensor] : *tensors) {
    TALON_CHECK(tensor.bytes.size() <= size);
    if (!tensor.bytes.empty()) {
      TALON_CHECK(tensor.bytes.data() >= data && &tensor.bytes.back() < data + size);
    }
    uint64_t bytes = talon::DTypeSize(tensor.dtype);
    for (const int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    TALON_CHECK(bytes == tensor.bytes.size());
  }
  return 0;
}
