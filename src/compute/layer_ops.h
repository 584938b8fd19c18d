// The ops that a backend's fused ops are made of. Models call the fused ones (backend.h); tests and
// the op benchmark also run these alone.
#ifndef TALON_COMPUTE_LAYER_OPS_H_
#define TALON_COMPUTE_LAYER_OPS_H_

#include "compute/backend.h"

namespace talon {

class LayerOps {
 public:
  virtual ~LayerOps() = default;

  // x = x / rms(x) * weight for each head of a row on its own: x is [rows, heads * head_dim],
  // weight [head_dim].
  virtual void RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) = 0;

  // out[:, i] = silu(x[:, i]) * x[:, cols/2 + i]; out has half the columns.
  virtual void SwiGlu(MatrixView gate_up, MatrixView out) = 0;

  // Gate and up alternate in a row: g = min(x[2i], limit), u = x[2i + 1] clamped to +-limit;
  // out[:, i] = g * sigmoid(1.702 g) * (u + 1). out has half the columns.
  virtual void ClampedGate(MatrixView gate_up, float limit, MatrixView out) = 0;

  // softmax(scale * q k^T) v over the keys of each row (pass_plan.h). out: as input.q. Rows staged
  // in blocks (slots >= 0 with a mask) are read from their slot. Works in tiles aligned to logical
  // key indices, so committed and staged keys give the same bits.
  virtual void Attention(const Pass& pass, const AttentionInput& input, MatrixView out) = 0;
};

// The layer ops of a backend of this module.
LayerOps& LayerOpsOf(Backend& backend);

}  // namespace talon

#endif  // TALON_COMPUTE_LAYER_OPS_H_
