// An EAGLE head: one transformer layer that continues a target's captured features.
//
// A draft row takes a feature (of the target, fused, or of an earlier draft row), the token that
// follows it, and a position. The layer's K and V of every row are stored; everything else is
// computed only for the rows whose output is wanted, because with a single layer nothing else
// depends on it. That makes reading a prompt and following the target cheap.
//
// EAGLE-3 fuses the features of several layers once and gives the layer embedding and feature side
// by side, each normed. EAGLE-1 takes the target's last hidden state and fuses each row's feature
// with the embedding; its output is a hidden state like the target's, so the target's lm_head reads
// it as it is.
//
// Like the decoder, a pass allocates no device memory, and a row's bits do not depend on the other
// rows. Used by one thread, the one that uses the backend.
#ifndef TALON_MODEL_HEADS_EAGLE_HEAD_H_
#define TALON_MODEL_HEADS_EAGLE_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/pass_plan.h"
#include "model/decoder.h"
#include "model/heads/eagle_config.h"
#include "model/heads/eagle_weights.h"
#include "model/pass_limits.h"
#include "model/scratch.h"

namespace talon {

// Device memory of the head, valid until its next Forward. Rows as in PassPlan::output_rows.
struct EagleOutput {
  MatrixView logits;  // [outputs, Vd], of draft ids, times logit_scale
  MatrixView hidden;  // [outputs, H], the layer's output before the last norm, if there is one
  MatrixView next;    // [outputs, H], the feature of the next draft step: hidden, or its norm
};

class EagleHead {
 public:
  struct Options {
    WeightFormat weights = WeightFormat::kAsStored;
    int max_rows = 512;               // rows of one pass
    int max_output_rows = 64;         // rows of one pass that have outputs; at most max_rows
    int max_length = 0;               // longest sequence that will run; 0 = the target's
    std::vector<int> capture_layers;  // replaces the checkpoint's list unless empty
    // EAGLE-1: a file of the only tokens to draft (token_map.h), and the directory of the model
    // whose lm_head is cut to them. Empty: all.
    std::string token_map;
    std::string target_path;
  };
  // A checkpoint directory. The target and the backend must outlive the head: what the checkpoint
  // lacks (embeddings, lm_head) is the target's.
  static Result<std::unique_ptr<EagleHead>> Load(const std::string& dir, const Decoder& target,
                                                 Backend* backend, const Options& options);
  // Random weights of the usual shape for the target, for measurements of speed. Its trees have one
  // path as deep as they may be: the best successor of a token has nearly all of the probability.
  static Result<std::unique_ptr<EagleHead>> Random(const Decoder& target, Backend* backend,
                                                   const Options& options, uint64_t seed);

  const EagleConfig& config() const { return config_; }
  int max_rows() const { return max_rows_; }
  int max_output_rows() const { return max_output_rows_; }
  // The shape of a cache for the draft layer, without num_blocks, staging_rows, block_size, dtype.
  KvShape kv_shape() const;
  // [Vd] draft id -> target id.
  const std::vector<int32_t>& target_ids() const { return weights_.target_ids; }

  // Captured target features to inputs of Forward: [rows, A*Ht] -> [rows, H], any number of rows.
  // EAGLE-1's are the target's last hidden states.
  void Fuse(MatrixView features, MatrixView fused);

  // One pass of the layer. `inputs` [rows, H], fused features or earlier rows' `next` (not memory
  // of this head). plan.tokens are target ids, those the rows are paired with. `attend` has the
  // output rows only, as a plan of their own for the attention: the same sequences, positions and
  // masks; when every row is an output it may be `plan` itself. Fails, before anything is computed
  // or written, if a plan exceeds a limit or does not fit the cache.
  // `prepare`, where given, is called with the loaded pass before anything is computed.
  using Prepare = std::function<void(Pass*)>;
  Status Forward(const PassPlan& plan, const PassPlan& attend, const KvView& kv, MatrixView inputs,
                 EagleOutput* output, const Prepare& prepare = {});

  size_t weight_bytes() const { return weights_.bytes; }  // without what is the target's
  size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  // The inputs of the output rows to the attention.
  struct OutputRows {
    MatrixView x;       // [outputs, layer_inputs]
    MatrixView angles;  // [outputs, rotary_dim]
  };

  EagleHead(EagleConfig config, const Decoder& target, Backend* backend, EagleWeights weights);
  static Result<std::unique_ptr<EagleHead>> Create(EagleConfig config, const Decoder& target,
                                                   Backend* backend, EagleWeights weights,
                                                   const Options& options);
  Status AllocateRope(int max_length);
  Status AllocateWorkspace(const Options& options);
  PassLimits limits() const;
  Status CheckPlans(const PassPlan& plan, const PassPlan& attend, const KvShape& kv,
                    const MatrixView& inputs) const;

  bool AllAreOutputs(const PassPlan& plan) const;
  bool HasFeatureNorms() const { return config_.norm_before_fc || config_.fc_norm; }
  void NormFeatures(MatrixView features);
  // The layer's inputs of every row: embedding and feature, normed, side by side, or fused.
  void ReadInputs(MatrixView inputs);
  void FuseEmbeddings(MatrixView inputs);
  // K and V of every row, to the cache.
  void StoreKeys(int rows, const KvView& kv);
  // The residual stream of the output rows is started, too. Copies nothing more if all rows are.
  OutputRows SelectOutputs(const PassPlan& plan, MatrixView inputs);
  void RunAttention(const Pass& pass, const OutputRows& rows, const KvView& kv);
  void RunHead(int outputs);

  EagleConfig config_;
  const Decoder& target_;
  Backend* backend_;
  EagleWeights weights_;
  Buffer inv_freq_;  // float32 [rotary_dim / 2]
  float rope_scale_ = 1;
  std::unique_ptr<Pass> pass_;
  std::unique_ptr<Pass> attend_pass_;

  int max_rows_ = 0;
  int max_output_rows_ = 0;
  size_t workspace_bytes_ = 0;
  Scratch features_;  // [max_rows, A * Ht], only where norms stand before the fusing matrix
  Scratch embedded_;  // [max_rows, H], EAGLE-1 alone
  Scratch x_;         // [max_rows, layer_inputs]
  Scratch angles_;    // [max_rows, rotary_dim]
  Scratch kv_;        // [max_rows, 2 * kv]
  // All [max_output_rows, ...] from here on.
  Scratch out_x_;       // layer_inputs
  Scratch out_angles_;  // rotary_dim
  Scratch q_;           // q
  Scratch stream_;      // H, the residual stream
  Scratch next_;        // H, only with norm_output
  Scratch logits_;      // Vd

  std::vector<int32_t> all_rows_;  // 0, 1, ..., max_rows - 1
};

}  // namespace talon

#endif  // TALON_MODEL_HEADS_EAGLE_HEAD_H_
