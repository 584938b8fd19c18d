#include "compute/cuda/runtime/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <array>
#include <cstddef>

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

Encoder FoundEncoder() {
  static const Encoder encode = FindEncoder();
  return encode;
}

// Sizes of a tensor's dimensions and of its box in elements, the innermost first, and the distance
// in bytes of neighbours in every dimension but the innermost.
template <size_t kRank>
struct Tensor {
  const void* data;
  DType dtype;
  std::array<cuuint64_t, kRank> sizes;
  std::array<cuuint64_t, kRank - 1> strides;
  std::array<cuuint32_t, kRank> box;
};

CUtensorMapDataType TypeOf(DType dtype) {
  if (dtype == DType::kF16) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

template <size_t kRank>
bool Encode(const Tensor<kRank>& tensor, CUtensorMap* map) {
  if (FoundEncoder() == nullptr) return false;
  std::array<cuuint32_t, kRank> steps;
  steps.fill(1);
  return FoundEncoder()(map, TypeOf(tensor.dtype), kRank, const_cast<void*>(tensor.data),
                        tensor.sizes.data(), tensor.strides.data(), tensor.box.data(), steps.data(),
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool HasTensorMaps() { return FoundEncoder() != nullptr; }

bool MakeTensorMap(const BoxedMatrix& matrix, CUtensorMap* map) {
  return Encode(
      Tensor<2>{
          matrix.data,
          matrix.dtype,
          {static_cast<cuuint64_t>(matrix.cols), static_cast<cuuint64_t>(matrix.rows)},
          {static_cast<cuuint64_t>(matrix.stride) * 2},
          {static_cast<cuuint32_t>(matrix.box_cols), static_cast<cuuint32_t>(matrix.box_rows)}},
      map);
}

bool MakeTensorMap(const SlicedMatrix& matrix, CUtensorMap* map) {
  const auto rows = static_cast<cuuint64_t>(matrix.rows);
  const size_t element = DTypeSize(matrix.dtype);
  const auto slice_cols = static_cast<cuuint32_t>(kMapSliceBytes / element);
  const cuuint64_t row_bytes = static_cast<cuuint64_t>(matrix.stride) * element;
  const cuuint64_t slice_bytes = matrix.slice_stride == 0
                                     ? kMapSliceBytes
                                     : static_cast<cuuint64_t>(matrix.slice_stride) * element;
  const auto parts = static_cast<cuuint32_t>(matrix.parts);
  return Encode(Tensor<4>{matrix.data,
                          matrix.dtype,
                          {slice_cols, rows, parts, static_cast<cuuint64_t>(matrix.slices)},
                          {row_bytes, rows * row_bytes, slice_bytes},
                          {slice_cols, static_cast<cuuint32_t>(matrix.box_rows), parts,
                           static_cast<cuuint32_t>(matrix.box_slices)}},
                map);
}

}  // namespace talon::cuda
