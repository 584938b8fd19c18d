// Logits without the tokens that a grammar forbids (TokenOps::MaskRows).
#ifndef TALON_COMPUTE_CUDA_TOKENS_MASK_ROWS_H_
#define TALON_COMPUTE_CUDA_TOKENS_MASK_ROWS_H_

#include <cstdint>

#include "compute/cuda/runtime/launch.h"
#include "compute/matrix.h"

namespace talon::cuda {

// `rows` [count] and `masks` [count][words of a row] in device memory.
void MaskRows(const Stream& stream, MatrixView x, int count, const int32_t* rows,
              const uint64_t* masks);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_MASK_ROWS_H_
