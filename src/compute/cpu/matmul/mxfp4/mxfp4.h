// Products with MXFP4 weights, from the codes as they lie in the file: a mapped file serves as it
// is. Only the scales, a byte for 16 bytes of codes, are copied, so that those of four outputs lie
// together.
//
// Codes are doubled to whole numbers and activations rounded to 15 bits with a scale for each group
// of 32 inputs, in two signed bytes each: high * 128 + low. So the products of a group are summed
// exactly, as integers; groups are then added in ascending order, in float32. A row's bits do not
// depend on how rows and outputs are cut.
#ifndef TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_H_
#define TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/threads.h"
#include "compute/backend.h"
#include "compute/cpu/matmul/matmul.h"
#include "compute/cpu/matmul/mxfp4/mxfp4_kernels.h"
#include "compute/matrix.h"
#include "compute/mxfp4.h"

namespace talon {

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
  std::shared_ptr<const void> owner_;  // owns the codes, unless they were copied:
  Buffer copy_;
  Buffer scales_;  // [outputs / kMxfp4Outputs][groups][kMxfp4Outputs]
};

// Refers to the part's memory where it has an owner, else copies it. REQUIRES: CheckWeightParts.
Result<std::unique_ptr<Weight>> NewMxfp4Weight(const HostMatrix& part);

// `kernel`, for tests: one of AttainableMxfp4Kernels(); null takes the best.
void RunMxfp4Product(ThreadPool& pool, const MatMulArgs& args, const Mxfp4Weight& w,
                     MatMulScratch* scratch, const Mxfp4Kernel* kernel = nullptr);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_H_
