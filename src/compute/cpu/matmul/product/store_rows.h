// The last step of a product: finished rows to its output.
#ifndef TALON_COMPUTE_CPU_MATMUL_PRODUCT_STORE_ROWS_H_
#define TALON_COMPUTE_CPU_MATMUL_PRODUCT_STORE_ROWS_H_

#include <cstdint>

namespace talon {

struct StoredRows {
  const float* from;  // [rows][from_stride]
  int64_t from_stride;
  int rows, cols;
  const float* bias;  // [cols] or null
  bool add;           // to what is there
  // Past the caches, which then need not read first what is overwritten: for an output that they
  // cannot hold. Call FlushStreams before another thread reads it.
  bool stream;
  float* to;  // [rows][to_stride]
  int64_t to_stride;
};
void StoreRows(const StoredRows& rows);

void FlushStreams();

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_PRODUCT_STORE_ROWS_H_
