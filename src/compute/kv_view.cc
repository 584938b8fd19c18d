#include "compute/kv_view.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

namespace talon {

bool ParseKvType(std::string_view name, DType* dtype) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"f32", DType::kF32},    {"f16", DType::kF16},         {"bf16", DType::kBF16},
      {"fp8", DType::kF8E4M3}, {"fp8_e4m3", DType::kF8E4M3}, {"int8", DType::kI8}};
  for (const auto& [known, type] : kNames) {
    if (lower != known) continue;
    *dtype = type;
    return true;
  }
  return false;
}

uint64_t IdentityOf(const KvView& kv) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, by words
  const auto mix = [&hash](uint64_t word) { hash = (hash ^ word) * 0x100000001b3; };
  const KvShape& shape = kv.shape;
  for (const int part : {shape.num_layers, shape.kv_heads, shape.head_dim, shape.block_size,
                         static_cast<int>(shape.dtype), shape.num_blocks, shape.staging_rows,
                         static_cast<int>(shape.layout)}) {
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
