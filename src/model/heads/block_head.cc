#include "model/heads/block_head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/valid_values.h"
#include "model/heads/head_file.h"
#include "model/rope.h"

namespace talon {
BlockHead::BlockHead(BlockConfig config, const Decoder& target, Backend* backend,
                     BlockWeights weights)
    : config_(std::move(config)),
      target_(target),
      backend_(backend),
      weights_(std::move(weights)),
      context_pass_(backend->NewPass(config_.layers.num_heads)),
      pass_(backend->NewPass(config_.layers.num_heads)) {}

Result<std::unique_ptr<BlockHead>> BlockHead::Load(const std::string& dir, const Decoder& target,
                                                   Backend* backend, const Options& options) {
  TALON_ASSIGN_OR_RETURN(BlockConfig config,
                         LoadBlockConfig(dir, target.config(), options.capture_layers));
  TALON_ASSIGN_OR_RETURN(BlockWeights weights,
                         LoadBlockWeights(dir, config, backend, options.weights));
  return Create(std::move(config), target, backend, std::move(weights), options);
}

Result<std::unique_ptr<BlockHead>> BlockHead::Random(DraftKind kind, int block_size,
                                                     const Decoder& target, Backend* backend,
                                                     const Options& options, uint64_t seed) {
  constexpr float kCertain = 4096;  // the best logits of random weights lie close together
  TALON_ASSIGN_OR_RETURN(BlockConfig config, UsualBlockConfig(kind, block_size, target.config(),
                                                              options.capture_layers));
  TALON_ASSIGN_OR_RETURN(BlockWeights weights,
                         RandomBlockWeights(config, backend, options.weights, seed));
  const std::vector<float> norm(config.layers.hidden_size, kCertain);
  backend->CopyIn(weights.norm.data(), norm.data(), norm.size() * sizeof(float));
  return Create(std::move(config), target, backend, std::move(weights), options);
}

Result<std::unique_ptr<BlockHead>> BlockHead::Create(BlockConfig config, const Decoder& target,
                                                     Backend* backend, BlockWeights weights,
                                                     const Options& options) {
  TALON_RETURN_IF_ERROR(CheckRange("max_context_rows", options.max_context_rows, {.low = 1}));
  TALON_RETURN_IF_ERROR(CheckRange("max_blocks", options.max_blocks, {.low = 1}));
  std::unique_ptr<BlockHead> head(
      new BlockHead(std::move(config), target, backend, std::move(weights)));
  const int length = options.max_length > 0 ? options.max_length : target.config().max_context;
  TALON_RETURN_IF_ERROR(head->Allocate(options, length));
  return head;
}

Status BlockHead::Allocate(const Options& options, int max_length) {
  max_blocks_ = options.max_blocks;
  const ModelConfig& layers = config_.layers;
  const RopeTable rope =
      ComputeRope(layers.rope, layers.head_dim, layers.max_position_embeddings, max_length);
  rope_scale_ = rope.scale;
  const size_t rope_bytes = rope.inv_freq.size() * sizeof(float);
  TALON_ASSIGN_OR_RETURN(inv_freq_, backend_->Allocate(rope_bytes));
  backend_->CopyIn(inv_freq_.data(), rope.inv_freq.data(), rope_bytes);
  const int context = options.max_context_rows;
  const int rows = max_blocks_ * config_.block_size;
  const int outputs = rows;  // checks read the anchors' rows, too
  const int hidden = layers.hidden_size;
  const struct {
    Scratch* scratch;
    int rows;
    int cols;
  } shapes[] = {{&fused_, context, hidden},
                {&context_, context, layers.num_layers * 2 * layers.kv_size()},
                {&angles_, std::max(context, rows), static_cast<int>(2 * rope.inv_freq.size())},
                {&stream_, rows, hidden},
                {&qkv_, rows, layers.q_size() + 2 * layers.kv_size()},
                {&hidden_, outputs, hidden},
                {&logits_, outputs, config_.draft_vocab_size},
                {&markov_in_, has_markov() ? max_blocks_ : 0, weights_.markov_rank},
                {&following_, has_markov() ? max_blocks_ : 0, config_.draft_vocab_size}};
  for (const auto& shape : shapes) {
    if (shape.rows == 0) continue;
    TALON_ASSIGN_OR_RETURN(*shape.scratch, NewScratch(backend_, shape.rows, shape.cols));
  }
  return OkStatus();
}

KvShape BlockHead::kv_shape() const {
  return {.num_layers = config_.layers.num_layers,
          .kv_heads = config_.layers.num_kv_heads,
          .head_dim = config_.layers.head_dim};
}

// Positions have no limit: the angles are computed, not looked up.
PassLimits BlockHead::limits(int max_rows) const {
  return {.what = "block head",
          .max_rows = max_rows,
          .max_output_rows = logits_.all.rows,
          .vocab_size = config_.layers.vocab_size,
          .max_position = std::numeric_limits<int>::max(),
          .num_layers = config_.layers.num_layers,
          .kv_heads = config_.layers.num_kv_heads,
          .head_dim = config_.layers.head_dim};
}

Status BlockHead::AddContext(const PassPlan& plan, const KvView& kv, MatrixView features) {
  TALON_RETURN_IF_ERROR(CheckPass(plan, kv.shape, limits(context_.all.rows)));
  if (features.rows != plan.num_rows() || features.cols != config_.features_size()) {
    return InvalidArgument("block head: features [{}, {}], expected [{}, {}]", features.rows,
                           features.cols, plan.num_rows(), config_.features_size());
  }
  backend_->LoadPass(plan, kv.shape, context_pass_.get());
  const uint64_t key = IdentityOf(kv) + reinterpret_cast<uintptr_t>(features.data);
  backend_->Record(context_pass_.get(), /*second=*/nullptr, key,
                   [&] { RunContext(plan.num_rows(), features, kv); });
  return OkStatus();
}

// The keys are normed and rotated as those of a layer's own rows, but nothing stands before the
// projections than the features' norm.
void BlockHead::RunContext(int rows, MatrixView features, const KvView& kv) {
  const ModelConfig& layers = config_.layers;
  const MatrixView fused = fused_.Rows(rows);
  const MatrixView context = context_.Rows(rows);
  const MatrixView angles = angles_.Rows(rows);
  backend_->RopeAngles(*context_pass_, Floats(inv_freq_), angles.cols / 2, rope_scale_, angles);
  backend_->MatMul(
      {.x = features, .w = weights_.fc.get(), .bias = Floats(weights_.fc_bias), .out = fused});
  backend_->MatMul({.x = fused,
                    .norm = Floats(weights_.hidden_norm),
                    .epsilon = layers.rms_norm_eps,
                    .w = weights_.context.get(),
                    .bias = Floats(weights_.context_bias),
                    .out = context});
  for (int i = 0; i < layers.num_layers; ++i) {
    const MatrixView k = context.Cols(2 * i * layers.kv_size(), layers.kv_size());
    const MatrixView v = context.Cols((2 * i + 1) * layers.kv_size(), layers.kv_size());
    const Buffer& norm = weights_.layers[static_cast<size_t>(i)].k_norm;
    if (norm.data() != nullptr) {
      backend_->layer_ops()->RmsNormHeads(k, layers.head_dim, Floats(norm), layers.rms_norm_eps);
    }
    backend_->layer_ops()->Rope(k, layers.head_dim, angles);
    backend_->kv_ops()->StoreKv(*context_pass_, k, v, kv, i);
  }
}

Status BlockHead::Forward(const PassPlan& plan, const KvView& kv, BlockOutput* output) {
  TALON_RETURN_IF_ERROR(CheckPass(plan, kv.shape, limits(stream_.all.rows)));
  const int rows = plan.num_rows();
  const auto outputs = static_cast<int>(plan.output_rows.size());
  backend_->LoadPass(plan, kv.shape, pass_.get());
  pass_->SetWaits(weights_.head == nullptr && !target_.shard().whole());
  backend_->Record(pass_.get(), /*second=*/nullptr, IdentityOf(kv), [&] {
    const MatrixView angles = angles_.Rows(rows);
    backend_->RopeAngles(*pass_, Floats(inv_freq_), angles.cols / 2, rope_scale_, angles);
    const bool own = weights_.embedding.data.data() != nullptr;
    const WeightTable& table = own ? weights_.embedding : target_.weights().embedding;
    backend_->Embed(*pass_, table.data.data(), table.dtype, stream_.Rows(rows));
    for (int i = 0; i < config_.layers.num_layers; ++i) RunLayer(i, rows, kv);
    if (outputs > 0) RunOutputs(rows, outputs);
  });
  *output = {};
  if (outputs > 0) *output = {.hidden = hidden_.Rows(outputs), .logits = logits_.Rows(outputs)};
  return OkStatus();
}

void BlockHead::RunLayer(int index, int rows, const KvView& kv) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  const ModelConfig& layers = config_.layers;
  const float eps = layers.rms_norm_eps;
  const float scale = 1.0f / std::sqrt(static_cast<float>(layers.head_dim));
  const MatrixView x = stream_.Rows(rows);
  const MatrixView qkv = qkv_.Rows(rows);
  const MatrixView q = qkv.Cols(0, layers.q_size());
  const MatrixView k = qkv.Cols(q.cols, layers.kv_size());
  const MatrixView v = qkv.Cols(q.cols + k.cols, layers.kv_size());
  backend_->ProjectQkv(
      *pass_, {x, Floats(layer.input_norm), eps, layer.qkv.get(), Floats(layer.qkv_bias), qkv},
      {q, k, v, Floats(layer.q_norm), Floats(layer.k_norm), eps}, angles_.Rows(rows), kv, index);
  backend_->AttentionMatMul(*pass_, {q, kv, index, scale}, *layer.output, Floats(layer.output_bias),
                            x);
  backend_->FeedForward(x, Floats(layer.post_norm), eps, layer.mlp.view());
}

void BlockHead::RunOutputs(int rows, int outputs) {
  const MatrixView hidden = hidden_.Rows(outputs);
  backend_->GatherPassRows(*pass_, PassRows::kOutputs, stream_.Rows(rows), hidden);
  backend_->layer_ops()->RmsNorm(hidden, Floats(weights_.norm), config_.layers.rms_norm_eps,
                                 hidden);
  const MatrixView logits = logits_.Rows(outputs);
  if (weights_.head == nullptr) return target_.Project({hidden}, logits);
  backend_->MatMul({.x = hidden, .w = weights_.head.get(), .out = logits});
}

MatrixView BlockHead::Following(std::span<const int32_t> rows, std::span<const int32_t> tokens) {
  TALON_CHECK(has_markov() && rows.size() == tokens.size());
  const auto count = static_cast<int>(rows.size());
  const MatrixView table{static_cast<float*>(weights_.markov_in.data()), config_.layers.vocab_size,
                         weights_.markov_rank, weights_.markov_rank};
  backend_->GatherRows(table, tokens, markov_in_.Rows(count));
  backend_->GatherRows(logits_.all, rows, following_.Rows(count));
  backend_->MatMul({.x = markov_in_.Rows(count),
                    .w = weights_.markov_out.get(),
                    .out = following_.Rows(count),
                    .accumulate = true});
  return following_.Rows(count);
}

}  // namespace talon
