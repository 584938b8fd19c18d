// A block head (DFlash, JetSpec, DSpark): a few transformer layers that draft a block of tokens in
// one pass.
//
// The context is not read as tokens: for every committed position the target's features are fused,
// and each layer's K and V are made of them at once, by one product for all layers, and kept in the
// draft's cache. A block's rows then see that cache and each other; their own K and V are staged
// and dropped.
//
// Like the decoder, a pass allocates no device memory, and a row's bits do not depend on other
// blocks. Used by one thread, the one that uses the backend.
#ifndef TALON_MODEL_HEADS_BLOCK_HEAD_H_
#define TALON_MODEL_HEADS_BLOCK_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/pass_plan.h"
#include "model/decoder.h"
#include "model/heads/block_config.h"
#include "model/heads/block_weights.h"
#include "model/pass_limits.h"
#include "model/scratch.h"

namespace talon {

// Device memory of the head, valid until its next Forward. Rows as in PassPlan::output_rows.
struct BlockOutput {
  MatrixView hidden;  // [outputs, H], after the final norm
  MatrixView logits;  // [outputs, Vd], of draft ids, without the Markov bias
};

class BlockHead {
 public:
  struct Options {
    WeightFormat weights = WeightFormat::kAsStored;
    int max_context_rows = 512;       // rows of one AddContext
    int max_blocks = 1;               // blocks of one Forward
    int max_length = 0;               // longest sequence that will run; 0 = the target's
    std::vector<int> capture_layers;  // replaces the checkpoint's list unless empty
  };
  // A checkpoint directory. The target and the backend must outlive the head: what the checkpoint
  // lacks (embeddings, lm_head) is the target's.
  static Result<std::unique_ptr<BlockHead>> Load(const std::string& dir, const Decoder& target,
                                                 Backend* backend, const Options& options);
  // Random weights of the usual shape, for measurements of speed. Its drafts are certain.
  static Result<std::unique_ptr<BlockHead>> Random(DraftKind kind, int block_size,
                                                   const Decoder& target, Backend* backend,
                                                   const Options& options, uint64_t seed);

  const BlockConfig& config() const { return config_; }
  int max_context_rows() const { return context_.all.rows; }
  int max_blocks() const { return max_blocks_; }
  // The shape of a cache for the draft's layers, without num_blocks, staging_rows, block_size,
  // dtype.
  KvShape kv_shape() const;
  // [Vd] draft id -> target id.
  const std::vector<int32_t>& target_ids() const { return weights_.target_ids; }

  // K and V of all layers for the plan's rows, which go to their slots, from the target's captured
  // features [rows, A * Ht]. Fails, before anything is computed or written, if the plan exceeds a
  // limit or does not fit the cache; so does Forward.
  Status AddContext(const PassPlan& plan, const KvView& kv, MatrixView features);
  // One pass of blocks. plan.tokens are the anchors and the mask token.
  Status Forward(const PassPlan& plan, const KvView& kv, BlockOutput* output);

  bool has_markov() const { return weights_.markov_rank > 0; }
  // Row rows[i] of the last Forward's logits for a draft that follows tokens[i]: with the Markov
  // bias. Valid until the next call. REQUIRES: has_markov(), at most max_blocks rows.
  MatrixView Following(std::span<const int32_t> rows, std::span<const int32_t> tokens);

  size_t weight_bytes() const { return weights_.bytes; }  // without what is the target's

 private:
  static Result<std::unique_ptr<BlockHead>> Create(BlockConfig config, const Decoder& target,
                                                   Backend* backend, BlockWeights weights,
                                                   const Options& options);
  BlockHead(BlockConfig config, const Decoder& target, Backend* backend, BlockWeights weights);
  Status Allocate(const Options& options, int max_length);
  PassLimits limits(int max_rows) const;

  void RunContext(int rows, MatrixView features, const KvView& kv);
  void RunLayer(int index, int rows, const KvView& kv);
  void RunOutputs(int rows, int outputs);

  BlockConfig config_;
  const Decoder& target_;
  Backend* backend_;
  BlockWeights weights_;
  Buffer inv_freq_;  // float32 [rotary_dim / 2]
  float rope_scale_ = 1;
  std::unique_ptr<Pass> context_pass_;
  std::unique_ptr<Pass> pass_;

  int max_blocks_ = 0;
  Scratch fused_;    // [max_context_rows, H]
  Scratch context_;  // [max_context_rows, layers * 2 * kv]
  Scratch angles_;   // [max rows of either pass, rotary_dim]
  // [max_blocks * block_size, ...]
  Scratch stream_;  // H, the residual stream
  Scratch qkv_;     // q + 2 * kv
  // [max_blocks * num_drafts, ...]
  Scratch hidden_;  // H
  Scratch logits_;  // Vd
  // [max_blocks, ...], with a Markov bias only
  Scratch markov_in_;  // R
  Scratch following_;  // Vd
};

}  // namespace talon

#endif  // TALON_MODEL_HEADS_BLOCK_HEAD_H_
