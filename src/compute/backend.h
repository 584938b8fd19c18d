// The operations a device provides: memory, weights, passes, and the fused ops of a transformer.
// Single steps of a layer, experts, the KV cache, tokens and the device's clock have interfaces of
// their own, reached from here.
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

#include "base/clock.h"
#include "base/status.h"
#include "compute/device_clock.h"
#include "compute/dtype.h"
#include "compute/expert_ops.h"
#include "compute/kv_ops.h"
#include "compute/kv_view.h"
#include "compute/layer_ops.h"
#include "compute/matrix.h"
#include "compute/pass_plan.h"
#include "compute/token_ops.h"

namespace talon {

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
  // By layer, 1: it has reported. Shorter where the last layers have not.
  std::span<const uint8_t> stored_layers() const { return stored_layers_; }
  void ClearStored() { stored_layers_.clear(); }

  // The host waits for other ranks in its ops, so they are not captured (Backend::Record).
  void SetWaits(bool waits) { waits_ = waits; }
  bool waits() const { return waits_; }

 protected:
  mutable std::vector<uint8_t> stored_layers_;  // a report, not a part of the plan

 private:
  bool waits_ = false;
};
enum class PassRows { kOutputs, kFeatures };  // PassPlan::output_rows, PassPlan::feature_rows

// out = x * w^T (+ bias) or, with `accumulate`, out += that. With `norm`, RmsNorm(x) takes the
// place of x.
struct MatMulArgs {
  MatrixView x;
  const float* norm = nullptr;  // [x.cols], or null
  float epsilon = 0;            // added in the norm
  const Weight* w = nullptr;
  const float* bias = nullptr;  // [w.rows], or null
  MatrixView out;
  bool accumulate = false;
};

// The result of the QKV product: views of one matrix's columns, and the norms of heads where there
// are any.
struct QkvRows {
  MatrixView q;  // [rows, heads * head_dim]
  MatrixView k;  // [rows, kv_heads * head_dim]
  MatrixView v;
  const float* q_norm = nullptr;  // [head_dim], or null: no norm
  const float* k_norm = nullptr;
  float epsilon = 0;
};

// What each of several ranks has of a product whose inputs are spread over them (attention output,
// MLP down). Either way the bits do not depend on the number of ranks.
enum class RankSplit {
  kInputs,   // its own inputs: the sums of fixed segments are added pairwise (ranks/segments.h)
  kOutputs,  // some outputs: ranks share the inputs before the product, and its outputs after it
};

struct BackendInfo {
  std::string name;         // "cpu", "reference"
  std::string description;  // "cpu, 2 threads, NEON + i8mm + bf16"
  RankSplit rank_split = RankSplit::kInputs;
  // What ranks exchange within a pass of dense layers is queued like other ops: the host does not
  // wait for it.
  bool queues_exchanges = false;
};

// What a weight is for.
struct WeightUse {
  // The right operand of a product whose inputs are spread over ranks. RankSplit::kInputs: products
  // add the inputs in segments, which begin and end at these, then the segments pairwise. kOutputs:
  // on several ranks, where the inputs of each begin and end.
  std::span<const int> bounds = {};
  // Outputs of the whole matrix, where this is the part of a rank; 0: this is the whole. The bits
  // of an output do not depend on which others are here.
  int whole_rows = 0;
  bool expert = false;  // one of ExpertOps, not of products
  // The rows of the products with it; without effect unless the weights are FP8
  // (HasFp8Activations).
  ActivationFormat activations = ActivationFormat::kAuto;
};

// Where memory lies: the device's own or, with more room and less speed, host memory that the
// device reads in place.
enum class Placement { kDevice, kOffloaded };

class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendInfo info() const = 0;
  // How this device reads blocks of such a cache fastest. Its ops take both layouts.
  virtual KvLayout BlockLayout(const KvShape& /*shape*/) const { return KvLayout::kVectors; }

  // Other interfaces to the same device, owned by the backend.
  virtual LayerOps* layer_ops() = 0;
  virtual ExpertOps* expert_ops() = 0;
  virtual KvOps* kv_ops() = 0;
  virtual TokenOps* token_ops() = 0;
  virtual DeviceClock* clock() = 0;

  // The clock by which what runs here is timed, its waits and the host's part included.
  virtual const Clock& time() const { return SteadyClock::Get(); }

  // Memory. New buffers are zero-filled and 64-byte aligned.
  virtual Result<Buffer> Allocate(size_t bytes, Placement placement) = 0;
  Result<Buffer> Allocate(size_t bytes) { return Allocate(bytes, Placement::kDevice); }
  virtual void CopyIn(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyOut(void* host, const void* device, size_t bytes) = 0;
  virtual void Synchronize() = 0;

  // Weights. Stacks the parts' rows into one matrix (fused QKV, gate + up). The parts must agree in
  // cols. The host memory is not needed afterwards.
  virtual Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts,
                                                     WeightFormat format, const WeightUse& use) = 0;
  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts,
                                             WeightFormat format) {
    return PackWeight(parts, format, {});
  }

  // Passes whose attention has this many query heads.
  virtual std::unique_ptr<Pass> NewPass(int query_heads) = 0;
  virtual void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) = 0;
  // Runs `ops`: ops that take no host spans and, unless the pass says so, do not wait. They may
  // depend only on the pass, on a second one if given, and on what `key` stands for: a device may
  // capture them once in a graph and replay it whenever passes of the same shapes come with the
  // same key.
  virtual void Record(Pass* pass, const Pass* second, uint64_t key,
                      const std::function<void()>& ops) = 0;

  // out[r] = table[tokens[r]], for the pass's tokens. `table` [vocab, cols] of `dtype` is device
  // memory. REQUIRES: tokens in range.
  virtual void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) = 0;

  virtual void MatMul(const MatMulArgs& args) = 0;

  // x += SwiGlu(RmsNorm(x) * gate_up^T) * down^T, with biases where there are any.
  virtual void FeedForward(MatrixView x, const float* norm, float epsilon,
                           const FeedForwardWeights& weights) = 0;

  // angles[r] = cos then sin of position[r] * inv_freq[i], times `scale`: [rows, 2 * half]. The
  // product is rounded to float32 first, as the reference implementations do.
  virtual void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                          MatrixView angles) = 0;

  // The QKV product, whose out's columns are `rows`, then everything before attention: norms the
  // heads of q and k where there are weights for it, rotates q and k in place, stores K and V in
  // the cache. K and V need not be left in product.out.
  virtual void ProjectQkv(const Pass& pass, const MatMulArgs& product, const QkvRows& rows,
                          MatrixView angles, const KvView& kv, int layer) = 0;

  // out += Attention(input) * w^T (+ bias), Attention being softmax(scale * q k^T) v over the keys
  // of each row (LayerOps::Attention).
  virtual void AttentionMatMul(const Pass& pass, const AttentionInput& input, const Weight& w,
                               const float* bias, MatrixView out) = 0;

  // out[i] = x[rows[i]]. Host span.
  virtual void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) = 0;
  // out[to[i]] = x[from[i]]. Host spans; REQUIRES: no row twice in `to`.
  virtual void CopyRows(MatrixView x, std::span<const int32_t> from, MatrixView out,
                        std::span<const int32_t> to) = 0;
  // out[i] = x[row i of those that the pass names].
  virtual void GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) = 0;

  // Ranks::GatherColumns of matrices in device memory. Waits for the other ranks, unless it is
  // captured (Record).
  virtual void GatherColumns(Ranks* ranks, MatrixView part, std::span<const int> bounds,
                             MatrixView whole) = 0;
};

}  // namespace talon

#endif  // TALON_COMPUTE_BACKEND_H_
