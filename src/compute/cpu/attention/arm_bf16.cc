// Packing and products of packed operands for attention with bfmmla (attention_arm_bf16-inl.h), and
// the table of its kernels.
#include "compute/cpu/attention/arm_bf16_product-inl.h"
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

// Eight keys, one stripe, by eight dimensions.
template <bool kWhole>
inline void PackEightKeys(const uint16_t* keys, int head_dim, int valid, uint16_t* out) {
  uint16x8_t groups[2 * kStripe];
#pragma GCC unroll 4
  for (int pair = 0; pair < kStripe; ++pair, keys += 2 * head_dim) {
    const uint16x8_t x = kWhole ? Load8(keys) : LoadPartial(keys, valid);
    const uint16x8_t y = kWhole ? Load8(keys + head_dim) : LoadPartial(keys + head_dim, valid);
    groups[pair] = LowHalves(x, y);
    groups[kStripe + pair] = HighHalves(x, y);
  }
#pragma GCC unroll 8
  for (int g = 0; g < 2 * kStripe; ++g) vst1q_u16(out + g * kGroup, groups[g]);
}

void PackKeys(const KvTile& tile, void* b) {
  const int whole = tile.head_dim / 8 * 8;
  auto* out = static_cast<uint16_t*>(b);
  for (int u = 0; u < tile.num_units; ++u, out += kStripeCols * PaddedDim(tile.head_dim)) {
    FetchAhead(tile.ahead[u], kUnitKeys * tile.head_dim * int64_t{2});
    const auto* keys = static_cast<const uint16_t*>(tile.units[u]);
    for (int d = 0; d < whole; d += 8) {
      PackEightKeys<true>(keys + d, tile.head_dim, 8, out + d * kStripeCols);
    }
    if (whole == tile.head_dim) continue;
    PackEightKeys<false>(keys + whole, tile.head_dim, tile.head_dim - whole,
                         out + whole * kStripeCols);
  }
}

inline void PackUnitValues(const uint16_t* in, int head_dim, int valid, uint16_t* out) {
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

void PackValues(const KvTile& tile, void* b) {
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], kUnitKeys * tile.head_dim * int64_t{2});
    const auto* in = static_cast<const uint16_t*>(tile.units[u]);
    uint16_t* out = static_cast<uint16_t*>(b) + u * kUnitKeys * kStripeCols;
    int d = 0;
    for (; d + 8 <= tile.head_dim; d += 8, out += kTileKeys * kStripeCols) {
      PackUnitValues(in + d, tile.head_dim, 8, out);
    }
    if (d < tile.head_dim) PackUnitValues(in + d, tile.head_dim, tile.head_dim - d, out);
  }
}

struct PackedColumns {
  const uint16_t* b;
  int64_t stripe;  // elements from stripe to stripe

  static constexpr int kSteps = 1;
  static constexpr int kMaxPairs = 6;
  PackedColumns From(int first) const { return {b + first * stripe, stripe}; }

  template <int kStripes, class F>
  TALON_INLINE void ForEachStep(int depth, F f) const {
    const uint16_t* from = b + depth * kStripeCols;
    uint16x8_t groups[kStripes * kStripe];
#pragma GCC unroll 16
    for (int g = 0; g < kStripes * kStripe; ++g) {
      groups[g] = Load8(from + g / kStripe * stripe + g % kStripe * kGroup);
    }
    f(0, groups);
  }
};

void Multiply(const TileProduct& product) {
  MultiplyRows(product, PackedColumns{static_cast<const uint16_t*>(product.b),
                                      int64_t{product.b_depth} * kStripeCols});
}

}  // namespace
}  // namespace arm_bf16

const AttentionKernels* ArmBf16AttentionKernels() {
  using namespace arm_bf16;
  static const AttentionKernels kernels = {.name = "bfmmla",
                                           .operand_size = sizeof(uint16_t),
                                           .row_pairs = true,
                                           .pack_query = PackQuery,
                                           .pack_keys = PackKeys,
                                           .pack_values = PackValues,
                                           .multiply = Multiply,
                                           .softmax = Softmax,
                                           .direct_rows = 10,
                                           .multiply_keys = MultiplyKeys,
                                           .multiply_values = MultiplyValues};
  const CpuFeatures& has = GetCpuFeatures();
  return has.bf16 && has.fp16fml ? &kernels : nullptr;  // fmlal comes with half precision
}

}  // namespace talon
