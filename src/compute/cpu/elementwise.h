// Ops on one row: everything but matrix products and attention. Each function reads and writes one
// row in a fixed order, so a row's bits depend on nothing else. Vectorised, no threads.
#ifndef TALON_COMPUTE_CPU_ELEMENTWISE_H_
#define TALON_COMPUTE_CPU_ELEMENTWISE_H_

#include <cstdint>
#include <span>

#include "compute/token_ops.h"

namespace talon {

// out[i] = x[i] / rms(x) * weight[i]. May work in place.
void RmsNormRow(const float* x, int cols, const float* weight, float epsilon, float* out);

// Rotates pairs (i, i + half) by the angles given as `half` cosines, then `half` sines.
void RopeHead(float* head, const float* angles, int half);

// out[i] = silu(gate[i]) * up[i].
void SwiGluRow(const float* gate, const float* up, int cols, float* out);

// The clamped gate of LayerOps::ClampedGate; `gate_up` has 2 * cols values.
void ClampedGateRow(const float* gate_up, int cols, float limit, float* out);

// Index of the largest value, the lowest of equals; NaN never wins; 0 if all are NaN.
int32_t ArgmaxRow(const float* x, int cols);

// The out.size() best log-probabilities (TokenOps::TopK). REQUIRES: out.size() <= cols.
void TopKRow(const float* x, int cols, std::span<TopKEntry> out);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ELEMENTWISE_H_
