// The single steps of a transformer layer, which a backend's larger ops (backend.h) fuse. They are
// called alone where there is nothing to fuse them with. Queued in order with the other ops.
#ifndef TALON_COMPUTE_LAYER_OPS_H_
#define TALON_COMPUTE_LAYER_OPS_H_

#include "compute/kv_view.h"
#include "compute/matrix.h"

namespace talon {

class Pass;
class Ranks;

struct AttentionInput {
  MatrixView q;  // [rows, heads * head_dim], heads a multiple of kv_heads
  KvView kv;
  int layer = 0;
  float scale = 1;  // factor of q k^T
  // A row sees the last `window` of its keys only, itself included; 0: all.
  int window = 0;
  // [heads] logits that join the softmax's denominator and have no value; null: none.
  const float* sinks = nullptr;
  // Null, or the ranks that have some of the heads each, and as many inputs of the product.
  Ranks* ranks = nullptr;
  // Where the scores go that the pass requests by attention, [kv_heads, scored blocks]; may be
  // empty if it requests none.
  MatrixView scores = {};
};

class LayerOps {
 public:
  virtual ~LayerOps() = default;

  // out = x / rms(x) * weight, per row. `weight` [cols]. May work in place.
  virtual void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) = 0;

  // x = x / rms(x) * weight for each head of a row on its own: x is [rows, heads * head_dim],
  // weight [head_dim].
  virtual void RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) = 0;

  // Rotates the first 2 * half elements of each head in place, by the angles of its row
  // (Backend::RopeAngles); pairs are (i, i + half). x: [rows, heads * head_dim].
  virtual void Rope(MatrixView x, int head_dim, MatrixView angles) = 0;

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

}  // namespace talon

#endif  // TALON_COMPUTE_LAYER_OPS_H_
