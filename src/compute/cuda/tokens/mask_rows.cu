#include <cmath>

#include "base/math.h"
#include "compute/cuda/tokens/mask_rows.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColsOfBlock = 16 * kThreads;

// blockIdx.x is the mask, blockIdx.y the part of the row.
__global__ void __launch_bounds__(kThreads)
    MaskRowsKernel(MatrixView x, const int32_t* rows, const uint64_t* masks) {
  PdlTrigger();
  PdlWait();
  float* row = x.data + rows[blockIdx.x] * x.stride;
  const uint64_t* mask = masks + static_cast<int64_t>(blockIdx.x) * CeilDiv(x.cols, 64);
  const int begin = blockIdx.y * kColsOfBlock;
  const int end = min(x.cols, begin + kColsOfBlock);
  for (int i = begin + threadIdx.x; i < end; i += kThreads) {
    if ((mask[i / 64] >> (i % 64) & 1) == 0 && row[i] > -INFINITY) row[i] = -INFINITY;
  }
}

}  // namespace

void MaskRows(const Stream& stream, MatrixView x, int count, const int32_t* rows,
              const uint64_t* masks) {
  Launch(stream, MaskRowsKernel, dim3(count, CeilDiv(x.cols, kColsOfBlock)), kThreads, 0, x, rows,
         masks);
}

}  // namespace talon::cuda
