#include "compute/backend.h"

#include <array>
#include <utility>

namespace talon {
namespace {

constexpr std::array<std::pair<WeightFormat, const char*>, 6> kFormatNames = {{
    {WeightFormat::kAsStored, "auto"},
    {WeightFormat::kF32, "f32"},
    {WeightFormat::kF16, "f16"},
    {WeightFormat::kBF16, "bf16"},
    {WeightFormat::kInt8, "int8"},
    {WeightFormat::kInt4, "int4"},
}};

}  // namespace

const char* WeightFormatName(WeightFormat format) {
  for (const auto& [value, name] : kFormatNames) {
    if (value == format) return name;
  }
  return "unknown";
}

bool ParseWeightFormat(std::string_view name, WeightFormat* format) {
  for (const auto& [value, known] : kFormatNames) {
    if (name == known) {
      *format = value;
      return true;
    }
  }
  return false;
}

std::string WeightFormatNames() {
  std::string names = kFormatNames[0].second;
  for (size_t i = 1; i < kFormatNames.size(); ++i) {
    names += i + 1 < kFormatNames.size() ? ", " : " or ";
    names += kFormatNames[i].second;
  }
  return names;
}

uint64_t IdentityOf(const KvView& kv) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, by words
  const auto mix = [&hash](uint64_t word) { hash = (hash ^ word) * 0x100000001b3; };
  const KvShape& shape = kv.shape;
  for (const int part : {shape.num_layers, shape.kv_heads, shape.head_dim, shape.block_size,
                         static_cast<int>(shape.dtype), shape.num_blocks, shape.staging_rows}) {
    mix(static_cast<uint64_t>(part));
  }
  for (const KvLayer& layer : kv.layers) {
    for (const void* array : {layer.k_blocks, layer.v_blocks, layer.k_staged, layer.v_staged,
                              layer.key_max, layer.key_min, static_cast<void*>(layer.key_norm)}) {
      mix(reinterpret_cast<uintptr_t>(array));
    }
  }
  return hash;
}

}  // namespace talon
