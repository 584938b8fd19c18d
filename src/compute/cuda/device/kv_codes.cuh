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

// Expands codes to pairs of bf16, given their scale.
template <typename T>
class CodeExpander;

// Sign, exponent and fraction move to their places in bf16, whose exponents have a bias of 120
// more. What is missing is multiplied in two steps, because it may exceed the range of bf16.
template <>
class CodeExpander<Fp8Code> {
 public:
  __device__ explicit CodeExpander(uint32_t scale) {
    const int exponent = static_cast<int>(scale) - 7;
    const int first = min(exponent, 127);
    first_ = Power(first);
    second_ = scale == kNanKvScale ? 0x7FC07FC0u : Power(exponent - first);
  }
  // Bytes 0 and 1, or 2 and 3.
  __device__ uint32_t Pair(uint32_t codes, bool high) const {
    const uint32_t spread = __byte_perm(codes, 0, high ? 0x3424 : 0x1404);  // above zero bytes
    const uint32_t bits = (spread & 0x80008000u) | (spread & 0x7F007F00u) >> 4;
    return Multiply(Multiply(bits, first_), second_);
  }

 private:
  __device__ static uint32_t Power(int exponent) {
    return static_cast<uint32_t>(exponent + 127) * 0x00800080u;
  }
  __device__ static uint32_t Multiply(uint32_t a, uint32_t b) {
    uint32_t product;  // a * b + -0: exact
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
  }
  uint32_t first_;
  uint32_t second_;
};

// Code + 128 is the fraction of a float of 2^23; an infinite scale makes zeros NaN.
template <>
class CodeExpander<Int8Code> {
 public:
  __device__ explicit CodeExpander(uint32_t scale) { scale_ = __uint_as_float(scale << 23); }
  __device__ uint32_t Pair(uint32_t codes, bool high) const {
    const uint32_t raised = codes ^ 0x80808080u;
    const float a = Value(__byte_perm(raised, 0x4B000000u, high ? 0x7442 : 0x7440));
    const float b = Value(__byte_perm(raised, 0x4B000000u, high ? 0x7443 : 0x7441));
    // Exact, so that the upper halves are the numbers.
    return __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632);
  }

 private:
  __device__ float Value(uint32_t bits) const {
    return __fmul_rn(__fsub_rn(__uint_as_float(bits), 8388736.0f), scale_);
  }
  float scale_;
};

// Eight codes.
template <typename T>
__device__ __forceinline__ uint4 ExpandCodes(const CodeExpander<T>& expander, uint32_t a,
                                             uint32_t b) {
  return {expander.Pair(a, false), expander.Pair(a, true), expander.Pair(b, false),
          expander.Pair(b, true)};
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_DEVICE_KV_CODES_CUH_
