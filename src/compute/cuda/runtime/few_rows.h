// Indices passed as kernel parameters where they are few, which saves an upload.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_FEW_ROWS_H_
#define TALON_COMPUTE_CUDA_RUNTIME_FEW_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compute/cuda/runtime/launch.h"
#include "compute/matrix.h"

namespace talon::cuda {

inline constexpr size_t kFewRows = 64;

struct FewIndices {
  int32_t at[kFewRows];

  // REQUIRES: at most kFewRows.
  static FewIndices Of(std::span<const int32_t> indices) {
    FewIndices few;
    std::ranges::copy(indices, few.at);
    return few;
  }
};

// out[i] = x[rows[i]] for out.rows rows.
void GatherFewRows(const Stream& stream, MatrixView x, const FewIndices& rows, MatrixView out);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_FEW_ROWS_H_
