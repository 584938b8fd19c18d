// From the accumulators of a task to rows of the product: segment by segment, added pairwise
// (compute/ranks/segments.h).
#ifndef TALON_COMPUTE_CPU_MATMUL_PRODUCT_SEGMENT_SUMS_H_
#define TALON_COMPUTE_CPU_MATMUL_PRODUCT_SEGMENT_SUMS_H_

#include <cstdint>

#include "compute/cpu/matmul/product/product.h"

namespace talon {

class SegmentSums {
 public:
  SegmentSums(const Product& product, const Block& block) : product_(product), block_(block) {}

  // A part's accumulators of a segment, [tiles][panels][max_rows * width].
  void Add(const BlockPart& part, const uint32_t* acc);
  // All parts were added. The last segment ends the task: rows of `out` are written.
  void EndSegment();

 private:
  static constexpr int kMostWaiting = 3;  // left halves of subtrees of 8, 4 and 2 segments

  template <typename Values>
  void AddPart(const BlockPart& part, const uint32_t* acc, const Values& values);
  void Store(int row, float* values) const;
  float* Waiting(int depth, int row) { return waiting_[depth] + row * kMaxOutputsPerTask; }

  const Product& product_;
  const Block& block_;
  int segment_ = 0;  // the next one
  int depth_ = 0;    // sums that wait for what is right of them
  alignas(64) float waiting_[kMostWaiting][kBlockSums];
};

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_PRODUCT_SEGMENT_SUMS_H_
