// Orders queries, keys and values for attention with bfmmla (arm_bf16-inl.h), and the table of its
// kernels.
#include <cstring>

#include "compute/cpu/attention/arm_bf16-inl.h"
#include "compute/cpu/cpu_features.h"

namespace talon {
namespace arm_bf16 {
namespace {

// Four elements in every eight, beside those of the other row of the pair.
void PackQuery(const float* q, int head_dim, float scale, void* out) {
  auto* packed = static_cast<bfloat16_t*>(out);
  int i = 0;
  for (; i + 4 <= head_dim; i += 4) {
    vst1_bf16(packed + 2 * i, vcvt_bf16_f32(vmulq_n_f32(vld1q_f32(q + i), scale)));
  }
  for (; i < PaddedDim(head_dim); ++i) {
    packed[i / 4 * kGroup + i % 4] = vcvth_bf16_f32(i < head_dim ? q[i] * scale : 0.0f);
  }
}

// Eight elements from `p`, zeros from `valid` on.
inline uint16x8_t LoadPartial(const uint16_t* p, int valid) {
  if (valid >= kGroup) return Load8(p);
  uint16_t buffer[kGroup] = {};
  for (int i = 0; i < valid; ++i) buffer[i] = p[i];
  return Load8(buffer);
}

// Eight keys by eight dimensions.
inline void OrderEightKeys(const uint16_t* keys, int head_dim, int valid, uint16_t* out) {
#pragma GCC unroll 4
  for (int pair = 0; pair < kStripe; ++pair, keys += 2 * head_dim) {
    const uint16x8_t x = LoadPartial(keys, valid);
    const uint16x8_t y = LoadPartial(keys + head_dim, valid);
    vst1q_u16(out + pair * kGroup, LowHalves(x, y));
    vst1q_u16(out + (kStripe + pair) * kGroup, HighHalves(x, y));
  }
}

void OrderKeys(const void* vectors, int head_dim, void* unit) {
  const auto* keys = static_cast<const uint16_t*>(vectors);
  auto* out = static_cast<uint16_t*>(unit);
  for (int d = 0; d < head_dim; d += 8) {
    OrderEightKeys(keys + d, head_dim, head_dim - d, out + d * kUnitKeys);
  }
}

inline void OrderEightValues(const uint16_t* in, int head_dim, int valid, uint16_t* out) {
  const auto load = [&](int key) { return LoadPartial(in + key * head_dim, valid); };
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half, out += kStripe * kGroup) {
    const int* keys = kDepthKeys[half];
    const uint16x8x4_t stripe =
        TransposeValues(load(keys[0]), load(keys[1]), load(keys[2]), load(keys[3]));
#pragma GCC unroll 4
    for (int g = 0; g < kStripe; ++g) vst1q_u16(out + g * kGroup, stripe.val[g]);
  }
}

void OrderValues(const void* vectors, int head_dim, void* unit) {
  const auto* values = static_cast<const uint16_t*>(vectors);
  auto* out = static_cast<uint16_t*>(unit);
  for (int d = 0; d < head_dim; d += 8) {
    OrderEightValues(values + d, head_dim, head_dim - d, out + d * kUnitKeys);
  }
}

// A unit of keys is a stripe.
void PackKeys(const KvTile& tile, void* b) {
  const int elements = kUnitKeys * PaddedDim(tile.head_dim);
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], elements * sizeof(uint16_t));
    std::memcpy(static_cast<uint16_t*>(b) + u * elements, tile.units[u],
                elements * sizeof(uint16_t));
  }
}

// A stripe is eight dimensions of all units.
void PackValues(const KvTile& tile, void* b) {
  constexpr int kEight = 8 * kUnitKeys;
  const int dim = PaddedDim(tile.head_dim);
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], kUnitKeys * dim * sizeof(uint16_t));
    const auto* unit = static_cast<const uint16_t*>(tile.units[u]);
    uint16_t* out = static_cast<uint16_t*>(b) + u * kEight;
    for (int d = 0; d < dim; d += 8, unit += kEight, out += kTileKeys * kStripeCols) {
      std::memcpy(out, unit, kEight * sizeof(uint16_t));
    }
  }
}

}  // namespace
}  // namespace arm_bf16

const AttentionKernels* const* NativeAttentionKernels() {
  using namespace arm_bf16;
  static const AttentionKernels kernels = {.name = "bfmmla",
                                           .operand_size = sizeof(uint16_t),
                                           .row_pairs = true,
                                           .pack_query = PackQuery,
                                           .pack_keys = PackKeys,
                                           .pack_values = PackValues,
                                           .multiply = Multiply,
                                           .softmax = Softmax,
                                           .unit_layout = KvLayout::kUnitsOfFours,
                                           .order_keys = OrderKeys,
                                           .order_values = OrderValues,
                                           .expand = ExpandUnit,
                                           .direct_rows = 24,
                                           .multiply_keys = MultiplyKeys,
                                           .multiply_values = MultiplyValues};
  static const AttentionKernels* const list[] = {&kernels, nullptr};
  const CpuFeatures& has = GetCpuFeatures();
  return has.bf16 && has.fp16fml ? list : list + 1;  // fmlal comes with half precision
}

}  // namespace talon
