// Products with MXFP4 weights, from the codes as they lie in the file: a mapped file serves as it
// is. Only the scales, a byte for 16 bytes of codes, are copied, so that those of four outputs lie
// together.
//
// Codes are doubled to whole numbers and activations rounded to 15 bits with a scale for each group
// of 32 inputs, in two signed bytes each: high * 128 + low. So the products of a group are summed
// exactly, as integers; groups are then added in ascending order, in float32. A row's bits do not
// depend on how rows and outputs are cut.
#ifndef TALON_COMPUTE_CPU_MATMUL_MXFP4_H_
#define TALON_COMPUTE_CPU_MATMUL_MXFP4_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/threads.h"
#include "compute/backend.h"
#include "compute/cpu/matmul/matmul.h"
#include "compute/matrix.h"
#include "compute/mxfp4.h"

namespace talon {

constexpr int kMxfp4Outputs = 4;  // that a kernel computes together

class Mxfp4Weight : public Weight {
 public:
  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  size_t bytes() const override { return rows_ * groups() * (kMxfp4GroupBytes + 1); }

  int64_t groups() const { return cols_ / kMxfp4Group; }
  // The codes and scales of outputs [first, first + kMxfp4Outputs), first a multiple of that.
  const uint8_t* codes(int64_t first) const { return codes_ + first * groups() * kMxfp4GroupBytes; }
  const uint8_t* scales(int64_t first) const {
    return static_cast<const uint8_t*>(scales_.data()) + first * groups();
  }

 private:
  friend Result<std::unique_ptr<Weight>> NewMxfp4Weight(const HostMatrix& part);
  int rows_ = 0;
  int cols_ = 0;
  const uint8_t* codes_ = nullptr;
  std::shared_ptr<const void> owner_;  // of the codes, unless they were copied:
  Buffer copy_;
  Buffer scales_;  // [outputs / kMxfp4Outputs][groups][kMxfp4Outputs]
};

// Refers to the part's memory where it has an owner, else copies it. REQUIRES: CheckWeightParts.
Result<std::unique_ptr<Weight>> NewMxfp4Weight(const HostMatrix& part);

void RunMxfp4Product(ThreadPool& pool, const MatMulArgs& args, const Mxfp4Weight& w,
                     MatMulScratch* scratch);

// A row of activations, group by group: the high bytes of the 16 even inputs, of the odd ones, then
// the low bytes of both.
constexpr int kMxfp4PackedBytes = 4 * kMxfp4GroupBytes;
constexpr int kMxfp4MaxRows = 4;

// Sums of kMxfp4Outputs outputs for up to kMxfp4MaxRows rows.
struct Mxfp4Tile {
  const uint8_t* codes = nullptr;   // [outputs][groups][kMxfp4GroupBytes]
  const uint8_t* scales = nullptr;  // [groups][kMxfp4Outputs], see Mxfp4FloatScale
  int outputs = kMxfp4Outputs;      // that there are; the others' sums are arbitrary
  int64_t groups = 0;
  int rows = 0;
  const int8_t* x = nullptr;        // [rows][groups][kMxfp4PackedBytes]
  const float* x_scales = nullptr;  // [rows][groups]
  float* sums = nullptr;            // [rows][kMxfp4Outputs]

  const uint8_t* CodesOf(int output) const {
    return codes + std::min(output, outputs - 1) * groups * kMxfp4GroupBytes;
  }
};
using Mxfp4Kernel = void (*)(const Mxfp4Tile& tile);

// The fastest kernel of this machine, and the one for any machine.
Mxfp4Kernel GetMxfp4Kernel();
void PortableMxfp4Kernel(const Mxfp4Tile& tile);
void ArmDotprodMxfp4Kernel(const Mxfp4Tile& tile);  // where the build is for this architecture
void X86Avx2Mxfp4Kernel(const Mxfp4Tile& tile);

// A scale as weights keep it: the exponent bits of the factor of doubled codes, a float32.
inline float Mxfp4FloatScale(uint8_t kept) {
  return std::bit_cast<float>(static_cast<uint32_t>(kept) << 23);
}

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_MXFP4_H_
