// The loops of one task's block: slices of its weights, its panels, and the tiles of its rows.
#ifndef TALON_COMPUTE_CPU_MATMUL_PRODUCT_RUN_BLOCK_H_
#define TALON_COMPUTE_CPU_MATMUL_PRODUCT_RUN_BLOCK_H_

#include <cstdint>

#include "compute/cpu/matmul/product/product.h"

namespace talon {

// The block of rows `row_block` and of outputs `output_block`, as the product's plan counts them.
Block BlockOf(const Product& product, int64_t row_block, int64_t output_block);

// Memory for the sums of the product's largest block.
int64_t BlockSumsBytes(const Product& product);

// Computes the block. `memory`: BlockSumsBytes, 64-byte aligned, of this thread alone.
void RunBlock(const Product& product, const Block& block, void* memory);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_PRODUCT_RUN_BLOCK_H_
