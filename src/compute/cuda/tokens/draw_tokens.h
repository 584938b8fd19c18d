// Seeded draws from logits (TokenOps::DrawTokens). The weights of tokens are computed as a host
// sampler does it and have the same bits; sums are in double, but in another order.
#ifndef TALON_COMPUTE_CUDA_TOKENS_DRAW_TOKENS_H_
#define TALON_COMPUTE_CUDA_TOKENS_DRAW_TOKENS_H_

#include <cstdint>

#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/token_ops.h"

namespace talon::cuda {

// A block for each row of logits, the pass's output rows. `draws` [rows] in device memory, `out`
// [rows] wherever the device can write.
void DrawTokens(const Stream& stream, const DevicePlan& plan, MatrixView logits,
                const RowDraw* draws, int32_t* out);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_DRAW_TOKENS_H_
