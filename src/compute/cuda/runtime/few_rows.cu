#include "base/math.h"
#include "compute/cuda/runtime/few_rows.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void GatherFewKernel(MatrixView x, const __grid_constant__ FewIndices rows,
                                MatrixView out) {
  PdlTrigger();
  PdlWait();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= out.cols) return;
  out.data[blockIdx.y * out.stride + i] = x.data[rows.at[blockIdx.y] * x.stride + i];
}

}  // namespace

void GatherFewRows(const Stream& stream, MatrixView x, const FewIndices& rows, MatrixView out) {
  const dim3 grid(CeilDiv(out.cols, kThreads), out.rows);
  Launch(stream, GatherFewKernel, grid, kThreads, 0, x, rows, out);
}

}  // namespace talon::cuda
