// The operations a device provides: memory, weights, and about twenty ops.
//
// Made for an asynchronous device: ops are queued in order on the backend's one stream and may
// return before they ran; CopyOut and Synchronize wait. Code above this interface holds views of
// device memory and never dereferences them. Shapes are checked once, at the op's door, and a
// mismatch is a broken invariant (TALON_CHECK), because all shapes were validated at load.
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
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/dtype.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"
#include "compute/pass_plan.h"

namespace talon {

// A PassPlan as the backend wants it: uploaded, work split. Reused from pass to pass.
class Pass {
 public:
  virtual ~Pass() = default;
};

// A transformer layer's MLP. gate_up stacks the gate's rows and as many of up.
struct FeedForwardWeights {
  const Weight* gate_up = nullptr;
  const float* gate_up_bias = nullptr;  // or null
  const Weight* down = nullptr;
  const float* down_bias = nullptr;
};

// What the QKV product leaves for attention: views of one matrix's columns, and the norms of heads
// where the model has them.
struct QkvRows {
  MatrixView q;  // [rows, heads * head_dim]
  MatrixView k;  // [rows, kv_heads * head_dim]
  MatrixView v;
  const float* q_norm = nullptr;  // [head_dim], or null: no norm
  const float* k_norm = nullptr;
  float epsilon = 0;
};

// The QKV product: out = RmsNorm(x) * w^T (+ bias).
struct QkvProduct {
  MatrixView x;
  const float* norm = nullptr;
  float epsilon = 0;
  const Weight* w = nullptr;
  const float* bias = nullptr;  // or null
  MatrixView out;               // the matrix whose columns are a QkvRows
};

struct TopKEntry {
  int32_t id = 0;
  float log_prob = 0;
};

// Draft trees that grow on the device, ahead of the host: of each tree the `width` best nodes of a
// level are run, the `width` best successors of each are candidates for the next (the rules of
// spec/drafters/dynamic_tree.h). Rows of a beam: tree by tree, best first. A tree starts from a
// slot, in which its root was ranked.
struct BeamLimits {
  int trees = 0;  // and slots
  int width = 0;
  int levels = 0;
};
struct BeamRoot {
  int slot = 0;       // its successors are the first beam; the row of the outputs they continue
  int first_row = 0;  // the row where the output of the tree's node 0 will be
};
// A grown tree as rows of a pass that verifies it: the root, then its best drafts.
struct TreePlace {
  int tree = 0;         // as in StartBeams
  int levels = 0;       // drafts are at most this deep
  int root_row = 0;     // of the pass, loaded as it should be; the drafts' rows are behind it
  int nodes = 0;        // rows, the root's included
  int above = 0;        // nodes of the sequence above the root, all of them its ancestors
  int position = 0;     // of the root
  float min_score = 0;  // drafts of a lower score are left out
};
class BeamSearch {
 public:
  virtual ~BeamSearch() = default;
};

// The `count` largest of the columns [begin, end).
struct ColumnChoice {
  int begin = 0;
  int end = 0;
  int count = 0;
};

// How the token after an output row of a pass is drawn: temperature, then top-k, top-p and min-p,
// then the seeded draw (base/random.h) at the position after the row's.
struct RowDraw {
  uint64_t seed = 0;
  uint32_t choice = 0;
  float temperature = 0;  // 0: the token with the largest logit
  int32_t top_k = 0;      // 0 = off
  float top_p = 1;
  float min_p = 0;
};

// How long a device worked for a stage.
struct DeviceTime {
  const char* stage = "";
  double seconds = 0;
  int64_t batches = 0;  // of work, queued together
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu", "reference"
  virtual std::string description() const = 0;  // "cpu, 2 threads, NEON + i8mm + bf16"

  // Memory. New buffers are zero-filled and 64-byte aligned.
  virtual Result<Buffer> Allocate(size_t bytes) = 0;
  // The same where there is more room and less speed: host memory that a device reads in place.
  virtual Result<Buffer> AllocateOffloaded(size_t bytes) { return Allocate(bytes); }
  virtual void CopyIn(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyOut(void* host, const void* device, size_t bytes) = 0;
  virtual void Synchronize() = 0;

  // Measures how long the device works from StartClock to ReadClock, which waits. What is queued
  // belongs to the stage named last. Slows the queueing down; nothing where ops run in place.
  virtual void StartClock() {}
  virtual void ClockStage(const char* /*stage*/) {}
  virtual std::vector<DeviceTime> ReadClock() { return {}; }

  // Weights. Stacks the parts' rows into one matrix (fused QKV, gate + up). The parts must agree in
  // cols. The host memory is not needed afterwards.
  virtual Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts,
                                                     WeightFormat format) = 0;

  // Passes of a model whose attention has this many query heads.
  virtual std::unique_ptr<Pass> NewPass(int query_heads) = 0;
  virtual void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) = 0;
  // Runs `ops`: ops that take no host spans and do not wait. They may depend only on the pass, on a
  // second one if given, and on what `key` stands for: a device may record them once and replay the
  // recording whenever passes of the same shapes come with the same key.
  virtual void Record(Pass* pass, const Pass* second, uint64_t key,
                      const std::function<void()>& ops) = 0;

  // out[r] = table[tokens[r]], for the pass's tokens. `table` [vocab, cols] of `dtype` is device
  // memory. REQUIRES: tokens in range.
  virtual void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) = 0;

  // out = x / rms(x) * weight, per row. `weight` [cols]. May work in place.
  virtual void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) = 0;

  // The same for every head of a row on its own: x is [rows, heads * head_dim], weight [head_dim].
  virtual void RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) = 0;

  // out = x * w^T (+ bias [w.rows]) or, with `accumulate`, out += that. bias may be null.
  virtual void MatMul(MatrixView x, const Weight& w, const float* bias, MatrixView out,
                      bool accumulate) = 0;

  // Ops fused with the product that follows, whose left operand then is never seen outside and has
  // the form the product wants. out = RmsNorm(x) * w^T (+ bias):
  virtual void NormMatMul(MatrixView x, const float* norm, float epsilon, const Weight& w,
                          const float* bias, MatrixView out) = 0;
  // x += SwiGlu(RmsNorm(x) * gate_up^T) * down^T, with biases where there are any.
  virtual void FeedForward(MatrixView x, const float* norm, float epsilon,
                           const FeedForwardWeights& weights) = 0;

  // angles[r] = cos then sin of position[r] * inv_freq[i], times `scale`: [rows, 2 * half]. The
  // product is rounded to float32 first, as the reference implementations do.
  virtual void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                          MatrixView angles) = 0;

  // Rotates the first 2 * half elements of each head in place; pairs are (i, i + half).
  // x: [rows, heads * head_dim].
  virtual void Rope(MatrixView x, int head_dim, MatrixView angles) = 0;

  // out[:, i] = silu(x[:, i]) * x[:, cols/2 + i]; out has half the columns.
  virtual void SwiGlu(MatrixView gate_up, MatrixView out) = 0;

  // Writes each row's K and V, [rows, kv_heads * head_dim], rounded to the cache's type, to its
  // slot or its staging row (PassPlan::slots).
  virtual void StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv,
                       int layer) = 0;

  // All that lies between the QKV product and attention: norms the heads of q and k where there are
  // weights for it, rotates q and k in place, stores K and V.
  virtual void RotateAndStore(const Pass& pass, const QkvRows& rows, MatrixView angles,
                              const KvView& kv, int layer) = 0;

  // NormMatMul, then RotateAndStore of its result. K and V need not be left in product.out.
  virtual void ProjectQkv(const Pass& pass, const QkvProduct& product, const QkvRows& rows,
                          MatrixView angles, const KvView& kv, int layer) {
    NormMatMul(product.x, product.norm, product.epsilon, *product.w, product.bias, product.out);
    RotateAndStore(pass, rows, angles, kv, layer);
  }

  // softmax(scale * q k^T) v over the keys of each row (pass_plan.h). q and out:
  // [rows, heads * head_dim], heads a multiple of kv_heads. Rows staged in blocks
  // (slots >= 0 with a mask) are read from their slot. Works in tiles aligned to logical key
  // indices, so committed and staged keys give the same bits.
  virtual void Attention(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                         MatrixView out) = 0;

  // out += Attention(q) * w^T (+ bias).
  virtual void AttentionMatMul(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                               float scale, const Weight& w, const float* bias, MatrixView out) = 0;

  // Copies staging row rows[i] to slot slots[i] in layers [0, num_layers), K and V. Host spans.
  virtual void CommitRows(const KvView& kv, std::span<const int32_t> rows,
                          std::span<const int32_t> slots, int num_layers) = 0;
  // Copies slot to slot in all layers, in order of i. Sources may be overwritten only by later i.
  virtual void CopySlots(const KvView& kv, std::span<const int32_t> from,
                         std::span<const int32_t> to) = 0;
  // Copies the first `tokens` slots of a block in all layers (copy-on-write).
  virtual void CopyBlock(const KvView& kv, int from, int to, int tokens) = 0;
  // Copies staging row to staging row in all layers, in order of i, like CopySlots.
  virtual void CopyStaged(const KvView& kv, std::span<const int32_t> from,
                          std::span<const int32_t> to) = 0;

  // Copies blocks, others for each layer and kv head, from one cache to blocks [first, first + n)
  // of another: for kv head h of layer l those of blocks[(l * kv_heads + h) * n ..]. Host span. May
  // run beside what is queued later, until JoinCopies: no op before it may write what is read, or
  // read what is written.
  virtual void CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                         int first) = 0;
  virtual void JoinCopies() {}

  // Writes the summaries of full blocks in all layers. NaN in a key makes NaN of the summary's
  // element and norm. Host span. REQUIRES: KvShape::key_summaries.
  virtual void SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) = 0;
  // Scores of one layer's blocks as the pass asks for them (PassPlan::scores): out
  // [kv_heads, scored blocks], float32 throughout. With q [rows, heads * head_dim] after RoPE, a
  // block's score for a query head and row follows the request's scorer; they are reduced over the
  // request's rows, then averaged over the query heads of the kv head. NaN counts as -inf.
  virtual void ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                           MatrixView out) = 0;

  // Chooses columns of every row of x, for each of `choices` those with the largest values: ties to
  // the lower column, NaN as -inf. ChosenColumns gives them, ascending: [choices][x.rows][count]; a
  // row that is NaN throughout begins with -1. It waits, unless something was waited for since.
  // Host spans; what is given holds until the next choice.
  virtual void ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) = 0;
  virtual std::span<const int32_t> ChosenColumns() = 0;

  // out[i] = x[rows[i]]. Host span; or the pass's output or feature rows.
  virtual void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) = 0;
  virtual void GatherOutputs(const Pass& pass, MatrixView x, MatrixView out) = 0;
  virtual void GatherFeatures(const Pass& pass, MatrixView x, MatrixView out) = 0;

  // Index of each row's largest value, ties to the lowest index, NaN never wins (all NaN: 0).
  // Waits; host result [x.rows].
  virtual void Argmax(MatrixView x, std::span<int32_t> out) = 0;

  // Whether DrawTokens works here: else the host draws (model/sampling/sampler.h).
  virtual bool DrawsTokens() const { return false; }
  // The tokens drawn after the pass's output rows, -1 where no logit is above -inf. Waits; host
  // spans, [logits.rows] both.
  virtual void DrawTokens(const Pass& /*pass*/, MatrixView /*logits*/,
                          std::span<const RowDraw> /*draws*/, std::span<int32_t> /*out*/) {}

  // A search for at most this many trees, whose logits rank `token_ids`, or null: growing trees on
  // the host costs this device nothing more.
  virtual Result<std::unique_ptr<BeamSearch>> NewBeamSearch(
      const BeamLimits& /*limits*/, std::span<const int32_t> /*token_ids*/) {
    return std::unique_ptr<BeamSearch>();
  }
  // The rows of `logits` rank the successors of roots, each in its slot, and the rows of `outputs`
  // are kept as rows `slots` of `kept`. Holds until the slot is ranked again.
  virtual void RankRoots(BeamSearch* /*search*/, std::span<const int32_t> /*slots*/,
                         MatrixView /*logits*/, MatrixView /*outputs*/, MatrixView /*kept*/) {}
  virtual void StartBeams(BeamSearch* /*search*/, std::span<const BeamRoot> /*roots*/) {}
  // Writes the beam's tokens and masks into a loaded pass whose rows they are, and the outputs that
  // its nodes continue to `inputs`.
  virtual void LoadBeams(BeamSearch* /*search*/, Pass* /*pass*/, MatrixView /*kept*/,
                         MatrixView /*inputs*/) {}
  // Ranks the logits of the beam's rows and keeps its outputs; the next beam takes its place.
  virtual void ExpandBeams(BeamSearch* /*search*/, MatrixView /*logits*/, MatrixView /*outputs*/,
                           MatrixView /*kept*/) {}
  // Builds trees of what was ranked (DynamicTree::Build) into a loaded pass: tokens, positions and
  // masks of their drafts' rows. Rows that a tree cannot fill repeat its root as a child of it.
  virtual void LoadTrees(BeamSearch* /*search*/, Pass* /*pass*/,
                         std::span<const TreePlace> /*places*/) {}
  // All rankings since StartBeams, as indices into token_ids: [trees][width] of the roots, then
  // [levels][trees][width][width]. Waits, unless something was waited for since LoadTrees.
  virtual std::span<const TopKEntry> ReadBeams(BeamSearch* /*search*/) { return {}; }

  // Each row's k best log-probabilities (float32 log-softmax), best first, ties to the lower id.
  // Waits; host result [x.rows * k]. A row that holds NaN or +inf gives NaN log-probs throughout.
  virtual void TopK(MatrixView x, int k, std::span<TopKEntry> out) = 0;
};

}  // namespace talon

#endif  // TALON_COMPUTE_BACKEND_H_
