// Quantised K and V (kv_codes.h) in the kernels. Included by CUDA sources only.
#ifndef TALON_COMPUTE_CUDA_DEVICE_KV_CODES_CUH_
#define TALON_COMPUTE_CUDA_DEVICE_KV_CODES_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "compute/cuda/device/convert.cuh"
#include "compute/kv/kv_codes.h"
#include "compute/kv_view.h"

namespace talon::cuda {

// Elements of a quantised cache.
struct Fp8Code {
  static constexpr DType kType = DType::kF8E4M3;
  uint8_t bits;
};
struct Int8Code {
  static constexpr DType kType = DType::kI8;
  uint8_t bits;
};

// What elements of type T are read as, and whether they are codes.
template <typename T>
struct KvElement {
  using Value = T;
  static constexpr bool kIsCode = false;
};
template <>
struct KvElement<Fp8Code> {
  using Value = __nv_bfloat16;
  static constexpr bool kIsCode = true;
};
template <>
struct KvElement<Int8Code> {
  using Value = __nv_bfloat16;
  static constexpr bool kIsCode = true;
};

// A vector of a cache, read one element at a time.
template <typename T>
struct KvVector {
  const T* elements;
  uint8_t scale;  // if the elements are codes

  __device__ float operator[](int d) const {
    if constexpr (KvElement<T>::kIsCode) {
      return KvValue(T::kType, elements[d].bits, scale);
    } else {
      return ToFloat(elements[d]);
    }
  }
};

// Vector `index` of an array of `vectors` vectors.
template <typename T>
__device__ __forceinline__ KvVector<T> KvVectorAt(const void* array, int64_t vectors, int head_dim,
                                                  int64_t index) {
  const T* elements = static_cast<const T*>(array);
  KvVector<T> vector = {elements + index * head_dim, 0};
  if constexpr (KvElement<T>::kIsCode) {
    vector.scale = elements[vectors * head_dim + index].bits;
  }
  return vector;
}

// Calls f with a value of the C++ type of a cache's elements.
template <typename F>
void DispatchKvType(DType dtype, F&& f) {
  if (dtype == DType::kF8E4M3) return f(Fp8Code{});
  if (dtype == DType::kI8) return f(Int8Code{});
  DispatchFloatType(dtype, f);
}

// Pairs of bf16: a * b + c, and a * b, which is exact if the product is.
__device__ __forceinline__ uint32_t FmaPair(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
__device__ __forceinline__ uint32_t ScalePair(uint32_t a, uint32_t b) {
  return FmaPair(a, b, 0x80008000u);
}
// 2^(exponent - 127) in both halves.
__device__ __forceinline__ uint32_t PairOfPower(uint32_t exponent) {
  return exponent * 0x00800080u;
}

// Bytes 0 and 1, or 2 and 3, as numbers of 16 bits. __byte_perm does not repeat signs.
__device__ __forceinline__ uint32_t SpreadSigned(uint32_t bytes, bool high) {
  uint32_t spread;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(spread) : "r"(bytes), "r"(high ? 0xB3A2u : 0x9180u));
  return spread;
}

// Expands codes to pairs of bf16, given their scale. kLargest is the largest scale that Pair can
// multiply by.
template <typename T>
class PairExpander;

// The code's exponent and fraction move to their places in bf16, where they are 2^120 too small.
template <>
class PairExpander<Fp8Code> {
 public:
  static constexpr uint32_t kLargest = 134;

  __device__ explicit PairExpander(uint32_t scale) : factor_(PairOfPower(scale + 120)) {}
  // Bytes 0 and 1, or 2 and 3.
  __device__ uint32_t Pair(uint32_t codes, bool high) const {
    // Bytes above the codes repeat their signs.
    const uint32_t spread = SpreadSigned(codes, high);
    return ScalePair(spread << 4 & 0x87F087F0u, factor_);
  }

 private:
  uint32_t factor_;
};

// Seven bits in the fraction of 128 * scale are 128 * scale more than their value; the sign makes
// twice as much of what is subtracted.
template <>
class PairExpander<Int8Code> {
 public:
  static constexpr uint32_t kLargest = 247;

  __device__ explicit PairExpander(uint32_t scale)
      : minus_scale_(PairOfPower(scale) | 0x80008000u), raised_(PairOfPower(scale + 7)) {}
  __device__ uint32_t Pair(uint32_t codes, bool high) const {
    constexpr uint32_t kPairOf128 = 0x43004300;
    const uint32_t spread = __byte_perm(codes, 0, high ? 0x4342 : 0x4140);
    return FmaPair((spread & 0x00800080u) | kPairOf128, minus_scale_,
                   (spread & 0x007F007Fu) | raised_);
  }

 private:
  uint32_t minus_scale_;
  uint32_t raised_;
};

// Sixteen bf16 numbers.
struct ExpandedCodes {
  uint4 first;
  uint4 second;
};

template <typename T>
__device__ __forceinline__ uint4 ExpandEight(const PairExpander<T>& expander, uint32_t a,
                                             uint32_t b) {
  return {expander.Pair(a, false), expander.Pair(a, true), expander.Pair(b, false),
          expander.Pair(b, true)};
}
__device__ __forceinline__ void ScaleEight(uint32_t factor, uint4* x) {
  *x = {ScalePair(x->x, factor), ScalePair(x->y, factor), ScalePair(x->z, factor),
        ScalePair(x->w, factor)};
}

// Code times scale of sixteen codes of a vector whose scale is at most kLargest.
template <typename T>
__device__ __forceinline__ ExpandedCodes ExpandOrdinaryCodes(uint4 codes, uint32_t scale) {
  const PairExpander<T> expander(scale);
  return {ExpandEight(expander, codes.x, codes.y), ExpandEight(expander, codes.z, codes.w)};
}
// What a scale is more than kLargest, as a factor of ExpandOrdinaryCodes; NaN for kNanKvScale.
template <typename T>
__device__ __forceinline__ uint32_t ExcessFactor(uint32_t scale) {
  constexpr uint32_t kLargest = PairExpander<T>::kLargest;
  return scale == kNanKvScale ? 0x7FC07FC0u : PairOfPower(max(scale, kLargest) - kLargest + 127);
}
// The same for any scale.
template <typename T>
__device__ __forceinline__ ExpandedCodes ExpandCodes(uint4 codes, uint32_t scale) {
  constexpr uint32_t kLargest = PairExpander<T>::kLargest;
  ExpandedCodes x = ExpandOrdinaryCodes<T>(codes, min(scale, kLargest));
  if (scale > kLargest) {
    ScaleEight(ExcessFactor<T>(scale), &x.first);
    ScaleEight(ExcessFactor<T>(scale), &x.second);
  }
  return x;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_DEVICE_KV_CODES_CUH_
