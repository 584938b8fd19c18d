// Element conversions of whole rows, and symmetric int8 quantisation.
//
// int8: q = round(x / scale), scale = max|x| / 127, so q is in [-127, 127] and the error of an
// element is at most scale / 2. One scale per row: per output for weights, per token for
// activations. With one scale for a whole row the int32 sum over all inputs is exact and is scaled
// once at the end, so any order and tiling of the sum gives the same bits; scales per group would
// need float sums inside the loop.
//
// All functions treat a row on its own and are thread-safe.
#ifndef TALON_COMPUTE_CPU_MATMUL_QUANTIZE_H_
#define TALON_COMPUTE_CPU_MATMUL_QUANTIZE_H_

#include <cstdint>

#include "compute/dtype.h"

namespace talon {

struct RowScale {
  float scale = 0;    // x is about q * scale; NaN if the row holds NaN or infinity
  float inverse = 0;  // q = round(x * inverse)
};

// `type`: kF32, kF16, kBF16.
RowScale ChooseInt8Scale(const void* row, DType type, int64_t count);

// For rows rounded to f16: a power of two that brings the largest element to [2^14, 2^15), so that
// nothing overflows and elements 2^-28 times the largest keep all 11 bits.
RowScale ChooseF16Scale(const float* row, int64_t count);

void QuantizeInt8(const float* from, int64_t count, float inverse, int8_t* to);

void ConvertToF32(const void* from, DType type, int64_t count, float* to);
// `type`: kF32, kF16, kBF16; round to nearest even.
void ConvertFromF32(const float* from, int64_t count, DType type, void* to);

// Where a row goes in an interleaved layout [groups][rows][group]: its groups of consecutive
// elements lie `stride` bytes apart.
struct InterleavedRow {
  void* to = nullptr;  // the row's first group
  int64_t stride = 0;
  int group = 1;             // elements; group * element size is 2, 4, 8, 32 or 64 bytes
  DType type = DType::kF32;  // kF32, kF16, kBF16, kI8
  float inverse_scale = 1;   // elements are multiplied by this first (kI8, kF16)
  uint8_t flip = 0;          // every stored byte is xor-ed with this (kI8)
};

// Converts `count` elements of `type` (kF32, kF16, kBF16). The last group is filled with zeros.
void PackRow(const void* from, DType type, int64_t count, const InterleavedRow& row);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_QUANTIZE_H_
