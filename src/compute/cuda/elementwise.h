// Row-wise kernels. The left operand of a GEMM is written in the type and with the padding that its
// kernel requires (Operand).
#ifndef TALON_COMPUTE_CUDA_ELEMENTWISE_H_
#define TALON_COMPUTE_CUDA_ELEMENTWISE_H_

#include <cstdint>

#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/runtime/rows_out.h"
#include "compute/dtype.h"
#include "compute/matrix.h"

namespace talon::cuda {

void Embed(const Stream& stream, const DevicePlan& plan, const void* table, DType dtype,
           MatrixView out);
void RmsNorm(const Stream& stream, MatrixView x, const float* weight, float epsilon, RowsOut out);
// Whether such rows can be normed to FP8 by RmsNorm.
bool CanRmsNormToFp8(MatrixView x, const float* weight);
void SwiGlu(const Stream& stream, MatrixView gate_up, RowsOut out);
// LayerOps::ClampedGate.
void ClampedGate(const Stream& stream, MatrixView gate_up, float limit, MatrixView out);
void Convert(const Stream& stream, MatrixView x, RowsOut out);
// Rounds bf16 rows to FP8 of the same columns.
void RoundToFp8(const Stream& stream, int rows, const RowsOut& x, const RowsOut& out);
void RopeAngles(const Stream& stream, const DevicePlan& plan, const float* inv_freq, int half,
                float scale, MatrixView angles);
// out[i] = x[rows[i]], rows in device memory.
void GatherRows(const Stream& stream, MatrixView x, const int32_t* rows, MatrixView out);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ELEMENTWISE_H_
