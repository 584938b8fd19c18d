// Rows of the left operand in the form that a kernel takes.
#ifndef TALON_COMPUTE_CPU_MATMUL_PRODUCT_PACK_ROWS_H_
#define TALON_COMPUTE_CPU_MATMUL_PRODUCT_PACK_ROWS_H_

#include <cstdint>

#include "base/threads.h"
#include "compute/cpu/matmul/product/product.h"

namespace talon {

// From tile to tile of packed rows.
int64_t TileStride(const Product& product);

// Fills product.packed and product.row_scales.
void PackRows(ThreadPool& pool, const Product& product);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_PRODUCT_PACK_ROWS_H_
