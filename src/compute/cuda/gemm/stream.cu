#include "base/check.h"
#include "base/math.h"
#include "compute/cuda/gemm/layout.h"
#include "compute/cuda/gemm/stream.h"

namespace talon::cuda {

std::span<const StreamKernel> StreamKernels(DType weight_type) {
  switch (weight_type) {
    case DType::kBF16:
      return StreamKernelsBF16();
    case DType::kF16:
      return StreamKernelsF16();
    default:
      TALON_CHECK(weight_type == DType::kI8, "type {}", DTypeName(weight_type));
      return StreamKernelsInt8();
  }
}

const StreamKernel& ChooseStreamKernel(DType weight_type, int rows) {
  const StreamKernel* chosen = nullptr;
  for (const StreamKernel& kernel : StreamKernels(weight_type)) {
    chosen = &kernel;
    if (kernel.rows >= rows) break;
  }
  TALON_CHECK(chosen != nullptr);
  return *chosen;
}

void PrepareStreamKernels(int shared_memory) {
  for (const DType type : {DType::kBF16, DType::kF16, DType::kI8}) {
    for (const StreamKernel& kernel : StreamKernels(type)) {
      if (kernel.shared_bytes > static_cast<size_t>(shared_memory)) continue;
      AllowSharedMemory(kernel.kernel, kernel.shared_bytes);
    }
  }
}

void LaunchStream(const Stream& stream, const StreamKernel& kernel, const StreamArgs& args) {
  const int tiles = CeilDiv(args.outputs, kernel.outputs);
  const int row_blocks = CeilDiv(args.rows, kernel.rows);
  const unsigned blocks = static_cast<unsigned>(tiles) * row_blocks * args.splits;
  Launch(stream, kernel.kernel, blocks, kernel.threads, kernel.shared_bytes, args);
}

}  // namespace talon::cuda
