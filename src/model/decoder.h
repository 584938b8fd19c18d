// A decoder-only transformer: weights, workspace and the forward pass.
//
// One pass computes any mix of prompt and tree rows of any sequences (PassPlan). K and V go where
// the plan says; the cache itself belongs to the caller. Everything the pass needs is allocated at
// load, so a pass allocates no device memory. Used by one thread, the one that uses the backend.
//
// With several ranks, each has a decoder of its part (ranks/shard.h). The leader's Forward makes
// the others run theirs (RankFollower), and only the leader has logits and block scores.
#ifndef TALON_MODEL_DECODER_H_
#define TALON_MODEL_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/pass_plan.h"
#include "model/config.h"
#include "model/decoder_weights.h"
#include "model/pass_limits.h"
#include "model/ranks/leader.h"
#include "model/ranks/shard.h"
#include "model/scratch.h"

namespace talon {

struct LoadOptions {
  WeightFormat weights = WeightFormat::kAsStored;
  ActivationFormat activations = ActivationFormat::kAuto;  // for dense layers with FP8 weights
  int max_rows = 512;                                      // rows of one pass
  int max_output_rows = 64;  // rows of one pass that have outputs; at most max_rows
  std::function<void(double fraction)> progress;  // may be empty
  // Null, or the ranks that the model is spread over; they must outlive the decoder.
  Ranks* ranks = nullptr;
};

// Device memory of the decoder, but for the reports; valid until its next pass.
struct ForwardOutput {
  MatrixView logits;    // [output rows, vocab]
  MatrixView hidden;    // [output rows, hidden], after the final norm
  MatrixView features;  // [feature rows, captured layers * hidden], empty if none are captured
  // [layers * kv heads of all ranks, scored blocks], empty if the plan asks for none
  MatrixView scores;
  // Which layers report that they have stored their rows' K and V (Pass::stored_layers).
  std::span<const uint8_t> stored_layers;
};

class Decoder {
 public:
  // A Hugging Face model directory. `backend` must outlive the decoder.
  static Result<std::unique_ptr<Decoder>> Load(const std::string& dir, Backend* backend,
                                               const LoadOptions& options);
  // The same with random weights of config.dtype. REQUIRES: a config made by ParseModelConfig or
  // ShapeByName.
  static Result<std::unique_ptr<Decoder>> Random(const ModelConfig& config, Backend* backend,
                                                 const LoadOptions& options, uint64_t seed);

  const ModelConfig& config() const { return config_; }
  // This rank's share of config().num_kv_heads: what caches for this decoder hold.
  int kv_heads() const { return shard_.kv_heads.count(); }
  // The ops for caches that this decoder reads: on the leader of several ranks, they run on all.
  KvOps* kv_ops() { return leader_ != nullptr ? leader_.get() : backend_->kv_ops(); }
  RankLeader* leader() { return leader_.get(); }  // null: this rank is alone, or follows
  const ModelShard& shard() const { return shard_; }
  // A hash of the last pass's activations, which are whole on every rank.
  uint64_t activations_hash() const { return activations_hash_; }
  int max_rows() const { return max_rows_; }
  int max_output_rows() const { return max_output_rows_; }

  // From the next pass on, capture the input of these layers (the residual stream before the
  // layer's first norm); num_layers stands for the last layer's output, before the final norm.
  Status SetCaptureLayers(const std::vector<int>& layers);
  // Makes room for scores of this many blocks in a pass, all sequences together, on every rank.
  // Plans may ask for scores afterwards, over caches with key summaries.
  Status ReserveScores(int max_blocks);

  // Fails, before anything is computed or written, if the plan exceeds a limit or does not fit the
  // cache: too many rows, a token past the vocabulary, a position past max_context, a slot past the
  // pool.
  // Partial views have lists for all of config().num_kv_heads; each rank takes its own.
  // `prepare`, where given, is called with the loaded pass before anything is computed.
  using Prepare = std::function<void(Pass*)>;
  Status Forward(const PassPlan& plan, const KvView& kv, ForwardOutput* output,
                 const Prepare& prepare = {});

  // logits [rows, vocab] = hidden states [rows, hidden], after a norm where one is given, times the
  // output matrix, for heads that share it. On the leader of several ranks they all take part.
  struct HiddenStates {
    MatrixView rows;
    const float* norm = nullptr;  // [hidden]
    float epsilon = 0;
  };
  void Project(const HiddenStates& hidden, MatrixView logits) const;
  // Another rank's part, of at most max_output_rows().
  void FollowProject(std::span<const std::vector<float>> rows) const;

  // What a pass of this many rows, all of them outputs, exchanges between the ranks, without its
  // products: to measure it. REQUIRES: several ranks, at most max_output_rows(),
  // RankSplit::kInputs.
  void Exchange(int rows) const;

  // The tokens that the device draws after the output rows of the last pass. Waits.
  // REQUIRES: TokenOps::DrawsTokens().
  void DrawTokens(const ForwardOutput& output, std::span<const RowDraw> draws,
                  std::span<int32_t> tokens) {
    backend_->token_ops()->DrawTokens(*pass_, output.logits, draws, tokens);
  }

  // For models that share them; valid as long as the decoder.
  const DecoderWeights& weights() const { return weights_; }
  size_t weight_bytes() const { return weights_.bytes; }
  // What a pass of this many rows reads of them: all matrices, but only single rows of the
  // embedding table, and of the experts as many as independent rows choose on average.
  size_t weight_bytes_per_pass(int rows = 1) const;
  size_t workspace_bytes() const;

 private:
  Decoder(ModelConfig config, ModelShard shard, Backend* backend, DecoderWeights weights);
  static Result<std::unique_ptr<Decoder>> Create(const ModelConfig& config, Backend* backend,
                                                 const LoadOptions& options, WeightSource* source);
  Status AllocateWorkspace(const LoadOptions& options);
  PassLimits limits() const;

  Status CheckScores(const PassPlan& plan, const KvShape& kv) const;
  // The scores of a layer, or of all, for this rank's kv heads.
  MatrixView LayerScores(const PassPlan& plan, int first, int count) const;
  // Those of all ranks, on the leader; collects them there.
  MatrixView AllScores(const PassPlan& plan);

  // This rank's part of a plan.
  const PassPlan& OwnPlan(const PassPlan& plan);
  void RunPass(const PassPlan& plan, const KvView& kv);
  void RunLayer(int index, const PassPlan& plan, const KvView& kv);
  void CaptureInput(int index, const PassPlan& plan);
  void RunHead(const PassPlan& plan);
  // This rank's columns of the logits, collected by the leader.
  void ProjectOwn(MatrixView hidden, MatrixView logits) const;
  void ExchangeOwn(int rows) const;
  std::vector<float> ReadRows(MatrixView x) const;  // one behind the other
  // Has the other ranks end their pass, too.
  void EndPass(const PassPlan& plan);
  int q_size() const { return shard_.heads.count() * config_.head_dim; }
  int kv_size() const { return shard_.kv_heads.count() * config_.head_dim; }

  ModelConfig config_;
  ModelShard shard_;
  Ranks* ranks_ = nullptr;
  std::unique_ptr<RankLeader> leader_;
  uint64_t activations_hash_ = 0;
  Backend* backend_;
  DecoderWeights weights_;
  Buffer inv_freq_;  // float32 [rotary_dim / 2]
  float rope_scale_ = 1;
  std::unique_ptr<Pass> pass_;

  int max_rows_ = 0;
  int max_output_rows_ = 0;
  Scratch stream_;      // [max_rows, hidden], the residual stream
  Scratch angles_;      // [max_rows, rotary_dim]
  Scratch qkv_;         // [max_rows, q + 2 * kv]
  Scratch hidden_;      // [max_output_rows, hidden]
  Scratch logits_;      // [max_output_rows, vocab], on the leader
  Scratch own_logits_;  // [max_output_rows, shard_.vocab], of several ranks
  Scratch projected_;   // [max_output_rows, hidden], the same: hidden states of Project
  Scratch features_;    // [max_rows, captured * hidden]
  Scratch scores_;      // [layers * kv heads, ReserveScores], on the leader
  Scratch own_scores_;  // [layers * own kv heads, ReserveScores], of several ranks
  PassPlan own_plan_;
  std::vector<int> capture_layers_;
  uint64_t scratch_version_ = 0;  // counts the changes of `features_` and `scores_`
};

}  // namespace talon

#endif  // TALON_MODEL_DECODER_H_
