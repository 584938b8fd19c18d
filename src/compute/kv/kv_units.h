// Blocks in units of eight tokens: K and V of a kv head, eight tokens at a time, in the order in
// which the instructions of a CPU read them, so that attention rearranges nothing. Scales of
// quantised vectors are not concerned: they follow the last unit, in order.
//
// KvLayout::kUnitsOfFours (bfmmla): keys come in groups of two tokens by four dimensions: those of
// all eight tokens, then the next four dimensions. Values come in groups of two dimensions by four
// tokens: eight dimensions of the tokens 0, 1, 4, 5, then of 2, 3, 6, 7, then the next eight
// dimensions.
//
// KvLayout::kUnitsOfPairs (AVX-512): keys come in groups of two dimensions: those of all eight
// tokens, then the next two. Values come in groups of two tokens: all their dimensions, one by one,
// then the next two tokens.
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

// Units of fours: where four dimensions of a token's key begin, `four` counting them in fours.
inline int KeyFour(int token, int four) { return (four * 4 + token / 2) * 8 + token % 2 * 4; }
// Where dimension `d` of a token's value is.
inline int ValueInFours(int token, int d) {
  return d / 8 * 64 + token / 2 % 2 * 32 + d % 8 * 4 + token % 2 + token / 4 * 2;
}
// Units of pairs: where two dimensions of a token's key begin, `pair` counting them in twos.
inline int KeyPair(int token, int pair) { return (pair * kUnitTokens + token) * 2; }
// Where dimension `d` of a token's value is.
inline int ValueInPairs(int token, int d, int head_dim) {
  return (token / 2 * head_dim + d) * 2 + token % 2;
}

// Calls move(place in the unit, place in the vector, elements) for all parts of a token's vector.
template <class Move>
void ForUnitParts(const KvShape& shape, KvSide side, int token, const Move& move) {
  const int dim = shape.head_dim;
  const bool keys = side == KvSide::kKeys;
  if (shape.layout == KvLayout::kUnitsOfPairs) {
    for (int pair = 0; keys && pair < dim / 2; ++pair) move(KeyPair(token, pair), 2 * pair, 2);
    for (int d = 0; !keys && d < dim; ++d) move(ValueInPairs(token, d, dim), d, 1);
  } else {
    for (int four = 0; keys && four < dim / 4; ++four) move(KeyFour(token, four), 4 * four, 4);
    for (int d = 0; !keys && d < dim; ++d) move(ValueInFours(token, d), d, 1);
  }
}

// One token of a unit, of the shape's type.
inline void WriteToUnit(const KvShape& shape, KvSide side, const void* vector, int token,
                        void* unit) {
  const auto write = [&](auto element) {
    using T = decltype(element);
    ForUnitParts(shape, side, token, [&](int place, int d, int count) {
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
    ForUnitParts(shape, side, token, [&](int place, int d, int count) {
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
