// The operations a device provides: memory, weights, passes, and the ops of a transformer. KV cache
// ops, token ops and the device's clock are interfaces of their own, reached from here.
//
// Made for an asynchronous device: ops are queued in order on the backend's one stream and may
// return before they ran; CopyOut and Synchronize wait. Callers hold views of device memory and
// never dereference them. Shapes are checked once, at the op's door, and a mismatch is a broken
// invariant (TALON_CHECK), because all shapes were validated at load.
//
// Row independence: the bits of an output row depend only on that row's inputs, never on the other
// rows of the pass, their number, or the number of threads.
//
// Activations are float32, row-major. A backend is used by one thread at a time.
#ifndef TALON_COMPUTE_BACKEND_H_
#define TALON_COMPUTE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/beam_search.h"
#include "compute/device_clock.h"
#include "compute/dtype.h"
#include "compute/kv_ops.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"
#include "compute/pass_plan.h"
#include "compute/token_ops.h"

namespace talon {

class Ranks;

// A PassPlan in the backend's own form: uploaded, work split. Reused from pass to pass.
class Pass {
 public:
  virtual ~Pass() = default;

  // Each layer reports here that its K and V are stored (KvOps::StoreKv, Backend::ProjectQkv). A
  // replay (Record) reports what its capture did. LoadPass clears the reports.
  void ReportStored(int layer) const {
    if (layer >= static_cast<int>(stored_layers_.size())) stored_layers_.resize(layer + 1, 0);
    stored_layers_[layer] = 1;
  }
  // By layer, 1: it has reported. Shorter than the model where its last layers have not.
  std::span<const uint8_t> stored_layers() const { return stored_layers_; }
  void ClearStored() { stored_layers_.clear(); }

 protected:
  mutable std::vector<uint8_t> stored_layers_;  // a report, not a part of the plan
};
enum class PassRows { kOutputs, kFeatures };  // PassPlan::output_rows, PassPlan::feature_rows

// out = x * w^T (+ bias) or, with `accumulate`, out += that. With `norm`, RmsNorm(x) takes the
// place of x.
struct MatMulArgs {
  MatrixView x;
  const float* norm = nullptr;  // [x.cols], or null
  float epsilon = 0;            // of the norm
  const Weight* w = nullptr;
  const float* bias = nullptr;  // [w.rows], or null
  MatrixView out;
  bool accumulate = false;
};

// A transformer layer's MLP. gate_up stacks the gate's rows and as many of up.
struct FeedForwardWeights {
  const Weight* gate_up = nullptr;
  const float* gate_up_bias = nullptr;  // or null
  const Weight* down = nullptr;
  const float* down_bias = nullptr;
  // Null, or the ranks that have a part of the MLP each: outputs of gate_up, inputs of down.
  Ranks* ranks = nullptr;
};

// How a sparse layer chooses its experts, and what they compute.
struct ExpertRule {
  int per_row = 1;  // experts that each row goes through, those with the largest router logits
  // Weights of the chosen: the softmax of their logits or, if false, of all experts' logits.
  bool normalised = true;
  // 0: SwiGLU, as in FeedForward. Above: the clamped gate (LayerOps::ClampedGate).
  float gate_limit = 0;
};

// A transformer layer's MLP of experts.
struct ExpertsWeights {
  const Weight* router = nullptr;      // [experts, hidden]
  const float* router_bias = nullptr;  // or null
  std::span<const FeedForwardWeights> experts;
  const void* prepared = nullptr;  // of `experts` (Backend::PrepareExperts)
  ExpertRule rule;
  // Null, or the ranks that have some of the experts each; here they begin with `first_expert`.
  Ranks* ranks = nullptr;
  int first_expert = 0;
};

// The result of the QKV product: views of one matrix's columns, and the norms of heads where the
// model has them.
struct QkvRows {
  MatrixView q;  // [rows, heads * head_dim]
  MatrixView k;  // [rows, kv_heads * head_dim]
  MatrixView v;
  const float* q_norm = nullptr;  // [head_dim], or null: no norm
  const float* k_norm = nullptr;
  float epsilon = 0;
};

struct AttentionInput {
  MatrixView q;  // [rows, heads * head_dim], heads a multiple of kv_heads
  KvView kv;
  int layer = 0;
  float scale = 1;  // of q k^T
  // A row sees the last `window` of its keys only, itself included; 0: all.
  int window = 0;
  // [heads] logits that join the softmax's denominator and have no value; null: none.
  const float* sinks = nullptr;
  // Null, or the ranks that have some of the heads each, and as many inputs of the product.
  Ranks* ranks = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu", "reference"
  virtual std::string description() const = 0;  // "cpu, 2 threads, NEON + i8mm + bf16"

  // Other interfaces to the same device, owned by the backend.
  virtual KvOps* kv_ops() = 0;
  virtual TokenOps* token_ops() = 0;
  virtual DeviceClock* clock() = 0;

  // Memory. New buffers are zero-filled and 64-byte aligned.
  virtual Result<Buffer> Allocate(size_t bytes) = 0;
  // The same where there is more room and less speed: host memory that a device reads in place.
  virtual Result<Buffer> AllocateOffloaded(size_t bytes) { return Allocate(bytes); }
  virtual void CopyIn(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyOut(void* host, const void* device, size_t bytes) = 0;
  virtual void Synchronize() = 0;

  // Weights. Stacks the parts' rows into one matrix (fused QKV, gate + up). The parts must agree in
  // cols. The host memory is not needed afterwards.
  virtual Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts,
                                                     WeightFormat format) = 0;

  // The same for the right operand of a sum over ranks (ranks/segments.h): products add the inputs
  // in segments, which begin and end at `bounds`, then the segments pairwise. A device that does
  // not (SumsInSegments) cannot be one of several ranks.
  virtual Result<std::unique_ptr<Weight>> PackSummedWeight(const HostMatrix& part,
                                                           WeightFormat format,
                                                           std::span<const int> /*bounds*/) {
    return PackWeight({&part, 1}, format);
  }
  virtual bool SumsInSegments() const { return false; }

  // What ExpertFeedForward needs to know of a layer's experts, once they are packed; may be empty.
  virtual Result<Buffer> PrepareExperts(std::span<const FeedForwardWeights> /*experts*/) {
    return Buffer();
  }

  // Passes of a model whose attention has this many query heads.
  virtual std::unique_ptr<Pass> NewPass(int query_heads) = 0;
  virtual void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) = 0;
  // Runs `ops`: ops that take no host spans and do not wait. They may depend only on the pass, on a
  // second one if given, and on what `key` stands for: a device may capture them once in a graph
  // and replay it whenever passes of the same shapes come with the same key.
  virtual void Record(Pass* pass, const Pass* second, uint64_t key,
                      const std::function<void()>& ops) = 0;

  // out[r] = table[tokens[r]], for the pass's tokens. `table` [vocab, cols] of `dtype` is device
  // memory. REQUIRES: tokens in range.
  virtual void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) = 0;

  // out = x / rms(x) * weight, per row. `weight` [cols]. May work in place.
  virtual void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) = 0;

  virtual void MatMul(const MatMulArgs& args) = 0;

  // x += SwiGlu(RmsNorm(x) * gate_up^T) * down^T, with biases where there are any.
  virtual void FeedForward(MatrixView x, const float* norm, float epsilon,
                           const FeedForwardWeights& weights) = 0;

  // x += the sum of w_e * expert_e(RmsNorm(x)) over the experts that each row chose, added in
  // ascending order of the experts (a device that sums in segments: within segments of the experts,
  // then pairwise) whatever the other rows chose. An expert that no row chose is not read, each
  // other one once.
  virtual void ExpertFeedForward(MatrixView x, const float* norm, float epsilon,
                                 const ExpertsWeights& weights) = 0;
  // How many it has read since the start, of all layers together; 0 where the device does not
  // count.
  virtual int64_t experts_read() const { return 0; }

  // angles[r] = cos then sin of position[r] * inv_freq[i], times `scale`: [rows, 2 * half]. The
  // product is rounded to float32 first, as the reference implementations do.
  virtual void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                          MatrixView angles) = 0;

  // Rotates the first 2 * half elements of each head in place; pairs are (i, i + half).
  // x: [rows, heads * head_dim].
  virtual void Rope(MatrixView x, int head_dim, MatrixView angles) = 0;

  // The QKV product, whose out's columns are `rows`, then everything before attention: norms the
  // heads of q and k where there are weights for it, rotates q and k in place, stores K and V in
  // the cache. K and V need not be left in product.out.
  virtual void ProjectQkv(const Pass& pass, const MatMulArgs& product, const QkvRows& rows,
                          MatrixView angles, const KvView& kv, int layer) = 0;

  // out += Attention(input) * w^T (+ bias), Attention being softmax(scale * q k^T) v over the keys
  // of each row (layer_ops.h).
  virtual void AttentionMatMul(const Pass& pass, const AttentionInput& input, const Weight& w,
                               const float* bias, MatrixView out) = 0;

  // out[i] = x[rows[i]]. Host span.
  virtual void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) = 0;
  // The same for rows that the pass names.
  virtual void GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) = 0;

  // A search for at most this many trees, whose logits rank `token_ids`. Null where growing trees
  // on the host costs this device nothing more.
  virtual Result<std::unique_ptr<BeamSearch>> NewBeamSearch(const BeamLimits& limits,
                                                            std::span<const int32_t> token_ids) = 0;
};

}  // namespace talon

#endif  // TALON_COMPUTE_BACKEND_H_
