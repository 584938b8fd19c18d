#include <algorithm>

#include "base/math.h"
#include "compute/cuda/runtime/copy_rows.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostGridRows = 65535;

__global__ void CopyRowsKernel(MatrixView x, const int32_t* from, MatrixView out,
                               const int32_t* to) {
  PdlTrigger();
  PdlWait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= x.cols) return;
  out.data[to[blockIdx.y] * out.stride + i] = x.data[from[blockIdx.y] * x.stride + i];
}

}  // namespace

void CopyRows(const Stream& stream, MatrixView x, const int32_t* from, MatrixView out,
              const int32_t* to, int count) {
  for (int first = 0; first < count; first += kMostGridRows) {
    const dim3 grid(CeilDiv(x.cols, kThreads), std::min(count - first, kMostGridRows));
    Launch(stream, CopyRowsKernel, grid, kThreads, 0, x, from + first, out, to + first);
  }
}

}  // namespace talon::cuda
