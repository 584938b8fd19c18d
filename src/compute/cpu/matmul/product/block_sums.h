// From the accumulators of a block to rows of the product: segment by segment, added pairwise
// (compute/ranks/segments.h).
#ifndef TALON_COMPUTE_CPU_MATMUL_PRODUCT_BLOCK_SUMS_H_
#define TALON_COMPUTE_CPU_MATMUL_PRODUCT_BLOCK_SUMS_H_

#include <cstdint>

#include "compute/cpu/matmul/product/product.h"

namespace talon {

// The largest tile's accumulators.
inline constexpr int kMostTileSums = 32 * 32;

// Neighbouring tiles of a block.
struct TileRun {
  int64_t first, count;
};

class BlockSums {
 public:
  // Memory for the sums that wait for others.
  static int64_t Bytes(const Product& product, const Block& block);

  // `memory`: 64-byte aligned.
  BlockSums(const Product& product, const Block& block, void* memory);
  // Behind the memory that this uses.
  void* End() const { return waiting_ + Bytes(product_, block_) / sizeof(float); }

  // The accumulators of tiles and the block's p-th panel over a segment, [tiles][max_rows * width].
  // Segments come in order; those of the last one complete outputs.
  void Add(int segment, int64_t p, const TileRun& tiles, const uint32_t* acc);

 private:
  enum class Target { kWaiting, kBuffer, kOutput };

  // A tile's: `row` is its first in the block.
  template <typename Values>
  void AddRows(int segment, int64_t p, int row, const uint32_t* acc);
  Target TargetOf(int segment, int64_t p) const;
  // The buffer holds the p-th panel's complete rows, but for the bias.
  void StoreBuffer(int64_t p, int row, int rows) const;
  void GateBuffer(int64_t p, int row, int rows);

  // Sums of the block's row at a depth: those left of what is summed now wait at depth 0, 1, ...
  float* Waiting(int depth, int row) const {
    return waiting_ + (int64_t{depth} * block_.rows + row) * stride_;
  }
  // The block's first output of its row.
  float* OutputOf(int row) const {
    const MatrixView& out = product_.call.out;
    return out.data + (block_.first_row + row) * out.stride + block_.first_output;
  }

  const Product& product_;
  const Block& block_;
  float* waiting_;  // [depths][rows][panels * width]
  int64_t stride_;
  void (BlockSums::*add_rows_)(int, int64_t, int, const uint32_t*);
  alignas(64) float buffer_[kMostTileSums];
};

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_PRODUCT_BLOCK_SUMS_H_
