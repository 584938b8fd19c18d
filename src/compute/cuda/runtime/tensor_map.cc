#include "compute/cuda/runtime/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

namespace talon::cuda {
namespace {

using Encoder = PFN_cuTensorMapEncodeTiled_v12000;

Encoder FindEncoder() {
  constexpr int kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion,
                                                      cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // clears the error for the next call
    return nullptr;
  }
  return reinterpret_cast<Encoder>(function);
}

}  // namespace

bool MakeTensorMap(const BoxedMatrix& matrix, CUtensorMap* map) {
  static const Encoder encode = FindEncoder();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.cols),
                               static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t row_bytes = static_cast<cuuint64_t>(matrix.stride) * 2;
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(matrix.box_cols),
                             static_cast<cuuint32_t>(matrix.box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const auto type = matrix.dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return encode(map, type, 2, const_cast<void*>(matrix.data), sizes, &row_bytes, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace talon::cuda
