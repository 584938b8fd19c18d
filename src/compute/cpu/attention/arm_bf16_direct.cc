// Products of attention with keys and values as they lie in the cache, brought into the shape of
// operands in registers. For few rows, which would pay more for packing than for the product.
#include "compute/cpu/attention/arm_bf16_product-inl.h"

namespace talon::arm_bf16 {
namespace {

// Bytes of eight dimensions of a unit: the share of the next unit that is prefetched
// meanwhile.
constexpr int64_t kEightBytes = kUnitKeys * 8 * sizeof(uint16_t);

template <int kStripes>
inline void FetchShare(const void* ahead, int dim) {
  if (ahead == nullptr) return;
  FetchAhead(static_cast<const uint8_t*>(ahead) + dim / 8 * kEightBytes, kStripes * kEightBytes);
}

// A stripe is a unit of keys, the depth their dimensions.
struct KeyColumns {
  const void* const* units;
  const void* const* ahead;
  int head_dim;

  static constexpr int kSteps = 2;
  static constexpr int kMaxPairs = 5;
  KeyColumns From(int first) const { return {units + first, ahead + first, head_dim}; }

  template <int kStripes, class F>
  TALON_INLINE void ForEachStep(int depth, F f) const {
    uint16x8_t low[kStripes * kStripe];
    uint16x8_t high[kStripes * kStripe];
#pragma GCC unroll 4
    for (int s = 0; s < kStripes; ++s) {
      FetchShare<1>(ahead[s], depth);
      const uint16_t* keys = static_cast<const uint16_t*>(units[s]) + depth;
#pragma GCC unroll 4
      for (int pair = 0; pair < kStripe; ++pair) {
        const uint16x8_t x = Load8(keys + 2 * pair * head_dim);
        const uint16x8_t y = Load8(keys + (2 * pair + 1) * head_dim);
        low[s * kStripe + pair] = LowHalves(x, y);
        high[s * kStripe + pair] = HighHalves(x, y);
      }
    }
    f(0, low);
    f(1, high);
  }
};

// A stripe is eight dimensions, the depth the keys, unit by unit.
struct ValueColumns {
  const void* const* units;
  const void* const* ahead;
  int head_dim;
  int first_dim = 0;

  static constexpr int kSteps = 2;
  static constexpr int kMaxPairs = 5;
  ValueColumns From(int first) const {
    return {units, ahead, head_dim, first_dim + first * kStripeCols};
  }

  template <int kStripes, class F>
  TALON_INLINE void ForEachStep(int depth, F f) const {
    const int unit = depth / kUnitKeys;
    const uint16_t* values = static_cast<const uint16_t*>(units[unit]) + first_dim;
    const auto load = [&](int key, int s)
                          TALON_INLINE { return Load8(values + key * head_dim + s * kStripeCols); };
    FetchShare<kStripes>(ahead[unit], first_dim);
#pragma GCC unroll 2
    for (int step = 0; step < kSteps; ++step) {
      const int* keys = kDepthKeys[step];
      uint16x8_t groups[kStripes * kStripe];
#pragma GCC unroll 4
      for (int s = 0; s < kStripes; ++s) {
        const uint16x8x4_t stripe =
            TransposeValues(load(keys[0], s), load(keys[1], s), load(keys[2], s), load(keys[3], s));
#pragma GCC unroll 4
        for (int g = 0; g < kStripe; ++g) groups[s * kStripe + g] = stripe.val[g];
      }
      f(step, groups);
    }
  }
};

}  // namespace

void MultiplyKeys(const KvTile& keys, const TileProduct& product) {
  MultiplyRows(product, KeyColumns{keys.units, keys.ahead, keys.head_dim});
}

void MultiplyValues(const KvTile& values, const TileProduct& product) {
  MultiplyRows(product, ValueColumns{values.units, values.ahead, values.head_dim});
}

}  // namespace talon::arm_bf16
