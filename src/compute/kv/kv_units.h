// Blocks in units of eight tokens (KvLayout::kUnits): K and V of a kv head, eight tokens at a time,
// in the order in which the matrix instructions of a CPU read them, so that attention rearranges
// nothing. Scales of quantised vectors are not concerned: they follow the last unit, in order.
//
// Keys come in groups of two tokens by four dimensions: those of all eight tokens, then the next
// four dimensions. Values come in groups of two dimensions by four tokens: eight dimensions of the
// tokens 0, 1, 4, 5, then of 2, 3, 6, 7, then the next eight dimensions.
#ifndef TALON_COMPUTE_KV_KV_UNITS_H_
#define TALON_COMPUTE_KV_KV_UNITS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/kv_view.h"

namespace talon {

enum class KvSide { kKeys, kValues };

inline constexpr int kUnitTokens = 8;
inline constexpr int kMaxUnitDim = 512;  // larger heads lie as vectors

// One vector outside of its unit.
struct KvElements {
  alignas(64) uint8_t bytes[kMaxUnitDim * sizeof(uint16_t)];
};

inline bool FitsUnits(const KvShape& shape) {
  return shape.value_type() == DType::kBF16 && shape.head_dim % 8 == 0 &&
         shape.head_dim <= kMaxUnitDim;
}

// Where four dimensions of a token's key begin, `four` counting them in fours.
inline int KeyFour(int token, int four) { return (four * 4 + token / 2) * 8 + token % 2 * 4; }
// Where dimension `d` of a token's value is.
inline int ValuePlace(int token, int d) {
  return d / 8 * 64 + token / 2 % 2 * 32 + d % 8 * 4 + token % 2 + token / 4 * 2;
}

// Calls move(place in the unit, place in the vector, elements) for all parts of a token's vector.
template <class Move>
void ForUnitParts(KvSide side, int token, int head_dim, const Move& move) {
  if (side == KvSide::kKeys) {
    for (int four = 0; four < head_dim / 4; ++four) move(KeyFour(token, four), 4 * four, 4);
  } else {
    for (int d = 0; d < head_dim; ++d) move(ValuePlace(token, d), d, 1);
  }
}

// One token of a unit, of the shape's type.
inline void WriteToUnit(const KvShape& shape, KvSide side, const void* vector, int token,
                        void* unit) {
  const auto write = [&](auto element) {
    using T = decltype(element);
    ForUnitParts(side, token, shape.head_dim, [&](int place, int d, int count) {
      std::memcpy(static_cast<T*>(unit) + place, static_cast<const T*>(vector) + d,
                  count * sizeof(T));
    });
  };
  shape.quantised() ? write(uint8_t{}) : write(uint16_t{});
}
inline void ReadFromUnit(const KvShape& shape, KvSide side, const void* unit, int token,
                         void* vector) {
  const auto read = [&](auto element) {
    using T = decltype(element);
    ForUnitParts(side, token, shape.head_dim, [&](int place, int d, int count) {
      std::memcpy(static_cast<T*>(vector) + d, static_cast<const T*>(unit) + place,
                  count * sizeof(T));
    });
  };
  shape.quantised() ? read(uint8_t{}) : read(uint16_t{});
}

// `count` tokens, whole units, as vectors.
inline void ReadUnits(const KvShape& shape, KvSide side, const void* units, int count,
                      void* vectors) {
  for (int token = 0; token < count; ++token) {
    const int in_unit = token % kUnitTokens;
    ReadFromUnit(shape, side,
                 static_cast<const uint8_t*>(units) + (token - in_unit) * shape.VectorBytes(),
                 in_unit, static_cast<uint8_t*>(vectors) + token * shape.VectorBytes());
  }
}

}  // namespace talon

#endif  // TALON_COMPUTE_KV_KV_UNITS_H_
