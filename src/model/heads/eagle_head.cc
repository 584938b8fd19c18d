#include "model/heads/eagle_head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/valid_values.h"
#include "model/files/tensor_layout.h"
#include "model/heads/head_file.h"
#include "model/heads/token_map.h"
#include "model/rope.h"

namespace talon {
namespace {

// Many heads state fewer positions than they are run at; it works, but may draft worse there.
void WarnOfLongPositions(const std::string& dir, const EagleConfig& config, int max_length) {
  const bool scaled = config.rope.kind != RopeKind::kDefault;
  if (scaled || config.max_position_embeddings >= max_length) return;
  LogWarning("{}: the head states {} positions, sequences may have {}; acceptance may fall there",
             dir, config.max_position_embeddings, max_length);
}

// The lm_head that drafts, with the rows of the chosen tokens only.
Status CutVocabulary(const std::string& dir, const EagleHead::Options& options,
                     const Decoder& target, Backend* backend, EagleConfig* config,
                     EagleWeights* weights) {
  if (config->eagle3) {
    return InvalidArgument(
        "speculative_token_map: {} is an EAGLE-3 head, whose file says which "
        "tokens it drafts",
        dir);
  }
  TALON_ASSIGN_OR_RETURN(weights->target_ids, ReadTokenMap(options.token_map, config->vocab_size));
  const bool own = weights->head != nullptr;
  const TensorSpec shared = LayoutOf(target.config()).head[0];
  const TensorSpec head{own ? "lm_head.weight" : shared.name, shared.shape};
  TALON_ASSIGN_OR_RETURN(weights->head, CutRows(own ? dir : options.target_path, head,
                                                weights->target_ids, backend, options.weights));
  config->draft_vocab_size = static_cast<int>(weights->target_ids.size());
  return OkStatus();
}

int MaxLength(const EagleHead::Options& options, const Decoder& target) {
  return options.max_length > 0 ? options.max_length : target.config().max_context;
}

}  // namespace

EagleHead::EagleHead(EagleConfig config, const Decoder& target, Backend* backend,
                     EagleWeights weights)
    : config_(std::move(config)),
      target_(target),
      backend_(backend),
      weights_(std::move(weights)),
      pass_(backend->NewPass(config_.num_heads)),
      attend_pass_(backend->NewPass(config_.num_heads)) {}

Result<std::unique_ptr<EagleHead>> EagleHead::Load(const std::string& dir, const Decoder& target,
                                                   Backend* backend, const Options& options) {
  TALON_ASSIGN_OR_RETURN(EagleConfig config,
                         LoadEagleConfig(dir, target.config(), options.capture_layers));
  TALON_ASSIGN_OR_RETURN(EagleWeights weights,
                         LoadEagleWeights(dir, config, backend, options.weights));
  WarnOfLongPositions(dir, config, MaxLength(options, target));
  if (!options.token_map.empty()) {
    TALON_RETURN_IF_ERROR(CutVocabulary(dir, options, target, backend, &config, &weights));
  }
  return Create(std::move(config), target, backend, std::move(weights), options);
}

Result<std::unique_ptr<EagleHead>> EagleHead::Random(const Decoder& target, Backend* backend,
                                                     const Options& options, uint64_t seed) {
  constexpr float kCertain = 4096;  // the best logits of random weights lie close together
  EagleConfig config = UsualEagleConfig(target.config());
  config.logit_scale = kCertain;
  if (!options.capture_layers.empty()) config.capture_layers = options.capture_layers;
  TALON_ASSIGN_OR_RETURN(EagleWeights weights,
                         RandomEagleWeights(config, backend, options.weights, seed));
  return Create(std::move(config), target, backend, std::move(weights), options);
}

Result<std::unique_ptr<EagleHead>> EagleHead::Create(EagleConfig config, const Decoder& target,
                                                     Backend* backend, EagleWeights weights,
                                                     const Options& options) {
  TALON_RETURN_IF_ERROR(
      CheckRange("max_rows", options.max_rows, {.low = 1}).WithContext(config.name()));
  TALON_RETURN_IF_ERROR(CheckRange("max_output_rows", options.max_output_rows, {.low = 1})
                            .WithContext(config.name()));
  std::unique_ptr<EagleHead> head(
      new EagleHead(std::move(config), target, backend, std::move(weights)));
  TALON_RETURN_IF_ERROR(head->AllocateRope(MaxLength(options, target)));
  TALON_RETURN_IF_ERROR(head->AllocateWorkspace(options));
  return head;
}

Status EagleHead::AllocateRope(int max_length) {
  const RopeTable rope =
      ComputeRope(config_.rope, config_.head_dim, config_.max_position_embeddings, max_length);
  rope_scale_ = rope.scale;
  const size_t bytes = rope.inv_freq.size() * sizeof(float);
  TALON_ASSIGN_OR_RETURN(inv_freq_, backend_->Allocate(bytes));
  backend_->CopyIn(inv_freq_.data(), rope.inv_freq.data(), bytes);
  return OkStatus();
}

Status EagleHead::AllocateWorkspace(const Options& options) {
  max_rows_ = options.max_rows;
  max_output_rows_ = std::min(options.max_output_rows, max_rows_);
  const int hidden = config_.hidden_size;
  const int rotary = config_.rope.RotaryDim(config_.head_dim);
  const struct {
    Scratch* scratch;
    int rows;
    int cols;
  } shapes[] = {{&embedded_, config_.eagle3 ? 0 : max_rows_, hidden},
                {&x_, max_rows_, config_.layer_inputs()},
                {&angles_, max_rows_, rotary},
                {&kv_, max_rows_, 2 * config_.kv_size()},
                {&out_x_, max_output_rows_, config_.layer_inputs()},
                {&out_angles_, max_output_rows_, rotary},
                {&q_, max_output_rows_, config_.q_size()},
                {&stream_, max_output_rows_, hidden},
                {&next_, config_.norm_output ? max_output_rows_ : 0, hidden},
                {&logits_, max_output_rows_, config_.draft_vocab_size},
                {&features_, HasFeatureNorms() ? max_rows_ : 0, config_.features_size()}};
  for (const auto& [scratch, rows, cols] : shapes) {
    if (rows == 0) continue;
    TALON_ASSIGN_OR_RETURN(*scratch, NewScratch(backend_, rows, cols));
    workspace_bytes_ += scratch->buffer.bytes();
  }
  all_rows_.resize(static_cast<size_t>(max_rows_));
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
  return OkStatus();
}

KvShape EagleHead::kv_shape() const {
  return {.num_layers = 1, .kv_heads = config_.num_kv_heads, .head_dim = config_.head_dim};
}

void EagleHead::Fuse(MatrixView features, MatrixView fused) {
  TALON_CHECK(features.rows == fused.rows && features.cols == config_.features_size() &&
              fused.cols == config_.hidden_size);
  if (!config_.eagle3 && !config_.feature_norm) {
    for (int first = 0; first < features.rows; first += max_rows_) {
      const int count = std::min(max_rows_, features.rows - first);
      backend_->GatherRows(features.Rows(first, count), std::span(all_rows_).first(count),
                           fused.Rows(first, count));
    }
    return;
  }
  if (!config_.eagle3) {
    backend_->layer_ops()->RmsNorm(features, Floats(target_.weights().final_norm),
                                   target_.config().rms_norm_eps, fused);
    return;
  }
  if (!HasFeatureNorms()) {
    backend_->MatMul(
        {.x = features, .w = weights_.fc.get(), .bias = Floats(weights_.fc_bias), .out = fused});
    return;
  }
  for (int first = 0; first < features.rows; first += max_rows_) {
    const int count = std::min(max_rows_, features.rows - first);
    NormFeatures(features.Rows(first, count));
    backend_->MatMul({.x = features_.Rows(count),
                      .w = weights_.fc.get(),
                      .bias = Floats(weights_.fc_bias),
                      .out = fused.Rows(first, count)});
  }
}

// The norm of the whole row comes before those of its parts.
void EagleHead::NormFeatures(MatrixView features) {
  const MatrixView normed = features_.Rows(features.rows);
  const float eps = config_.rms_norm_eps;
  if (config_.norm_before_fc) {
    backend_->layer_ops()->RmsNorm(features, Floats(weights_.concat_norm), eps, normed);
  }
  const MatrixView& x = config_.norm_before_fc ? normed : features;
  const int size = config_.target_hidden_size;
  for (size_t i = 0; i < weights_.fc_norms.size(); ++i) {
    const int start = static_cast<int>(i) * size;
    backend_->layer_ops()->RmsNorm(x.Cols(start, size), Floats(weights_.fc_norms[i]), eps,
                                   normed.Cols(start, size));
  }
}

// Positions have no limit: the angles are computed, not looked up.
PassLimits EagleHead::limits() const {
  return {.what = config_.name(),
          .max_rows = max_rows_,
          .max_output_rows = max_output_rows_,
          .vocab_size = config_.vocab_size,
          .max_position = std::numeric_limits<int>::max(),
          .num_layers = 1,
          .kv_heads = config_.num_kv_heads,
          .head_dim = config_.head_dim};
}

Status EagleHead::CheckPlans(const PassPlan& plan, const PassPlan& attend, const KvShape& kv,
                             const MatrixView& inputs) const {
  TALON_RETURN_IF_ERROR(CheckPass(plan, kv, limits()));
  const auto outputs = static_cast<int>(plan.output_rows.size());
  if (attend.num_rows() != outputs) {
    return InvalidArgument("{}: {} rows attend, {} outputs wanted", config_.name(),
                           attend.num_rows(), outputs);
  }
  if (inputs.rows != plan.num_rows() || inputs.cols != config_.hidden_size) {
    return InvalidArgument("{}: inputs [{}, {}], expected [{}, {}]", config_.name(), inputs.rows,
                           inputs.cols, plan.num_rows(), config_.hidden_size);
  }
  if (&attend == &plan || outputs == 0) return OkStatus();
  return CheckPass(attend, kv, limits());
}

Status EagleHead::Forward(const PassPlan& plan, const PassPlan& attend, const KvView& kv,
                          MatrixView inputs, EagleOutput* output, const Prepare& prepare) {
  TALON_RETURN_IF_ERROR(CheckPlans(plan, attend, kv.shape, inputs));
  const int rows = plan.num_rows();
  const auto outputs = static_cast<int>(plan.output_rows.size());
  *output = {};
  backend_->LoadPass(plan, kv.shape, pass_.get());
  const Pass* second = nullptr;
  if (outputs > 0 && &attend != &plan) {
    backend_->LoadPass(attend, kv.shape, attend_pass_.get());
    second = attend_pass_.get();
  }
  if (prepare) prepare(pass_.get());
  // The ops' arguments follow from the passes' shapes, the cache, the inputs' place and whether the
  // outputs are all rows, in order.
  const uint64_t key =
      IdentityOf(kv) + reinterpret_cast<uintptr_t>(inputs.data) + (AllAreOutputs(plan) ? 1 : 0);
  pass_->SetWaits(weights_.head == nullptr && !target_.shard().whole());
  backend_->Record(pass_.get(), second, key, [&] {
    ReadInputs(inputs);
    StoreKeys(rows, kv);
    if (outputs == 0) return;
    RunAttention(second == nullptr ? *pass_ : *second, SelectOutputs(plan, inputs), kv);
    backend_->FeedForward(stream_.Rows(outputs), Floats(weights_.post_norm), config_.rms_norm_eps,
                          {weights_.gate_up.get(), Floats(weights_.gate_up_bias),
                           weights_.down.get(), Floats(weights_.down_bias)});
    RunHead(outputs);
  });
  if (outputs == 0) return OkStatus();
  output->hidden = stream_.Rows(outputs);
  output->next = config_.norm_output ? next_.Rows(outputs) : output->hidden;
  output->logits = logits_.Rows(outputs);
  return OkStatus();
}

bool EagleHead::AllAreOutputs(const PassPlan& plan) const {
  const auto rows = std::span(all_rows_).first(static_cast<size_t>(plan.num_rows()));
  return std::ranges::equal(plan.output_rows, rows);
}

void EagleHead::ReadInputs(MatrixView inputs) {
  const int hidden = config_.hidden_size;
  const MatrixView x = x_.Rows(inputs.rows);
  const MatrixView embedded = config_.eagle3 ? x.Cols(0, hidden) : embedded_.Rows(inputs.rows);
  const bool own = weights_.embedding.data.data() != nullptr;
  const WeightTable& table = own ? weights_.embedding : target_.weights().embedding;
  backend_->Embed(*pass_, table.data.data(), table.dtype, embedded);
  if (!config_.eagle3) return FuseEmbeddings(inputs);
  const MatrixView feature = x.Cols(hidden, hidden);
  backend_->layer_ops()->RmsNorm(embedded, Floats(weights_.embed_norm), config_.rms_norm_eps,
                                 embedded);
  backend_->layer_ops()->RmsNorm(inputs, Floats(weights_.hidden_norm), config_.rms_norm_eps,
                                 feature);
}

void EagleHead::FuseEmbeddings(MatrixView inputs) {
  const MatrixView x = x_.Rows(inputs.rows);
  backend_->MatMul({.x = embedded_.Rows(inputs.rows),
                    .w = weights_.fc_embed.get(),
                    .bias = Floats(weights_.fc_bias),
                    .out = x});
  backend_->MatMul({.x = inputs, .w = weights_.fc.get(), .out = x, .accumulate = true});
}

void EagleHead::StoreKeys(int rows, const KvView& kv) {
  const MatrixView keys_values = kv_.Rows(rows);
  const MatrixView k = keys_values.Cols(0, config_.kv_size());
  const MatrixView v = keys_values.Cols(k.cols, config_.kv_size());
  const MatrixView angles = angles_.Rows(rows);
  backend_->RopeAngles(*pass_, Floats(inv_freq_), angles.cols / 2, rope_scale_, angles);
  backend_->MatMul({.x = x_.Rows(rows),
                    .w = weights_.kv.get(),
                    .bias = Floats(weights_.kv_bias),
                    .out = keys_values});
  backend_->layer_ops()->Rope(k, config_.head_dim, angles);
  backend_->kv_ops()->StoreKv(*pass_, k, v, kv, /*layer=*/0);
}

EagleHead::OutputRows EagleHead::SelectOutputs(const PassPlan& plan, MatrixView inputs) {
  const auto outputs = static_cast<int>(plan.output_rows.size());
  const MatrixView x = x_.Rows(inputs.rows);
  // Without EAGLE-3's norms the layer's input is its residual, too.
  const MatrixView features = config_.eagle3 ? x.Cols(config_.hidden_size, config_.hidden_size) : x;
  const bool from_layer = !config_.eagle3 || config_.norm_before_residual;
  backend_->GatherPassRows(*pass_, PassRows::kOutputs, from_layer ? features : inputs,
                           stream_.Rows(outputs));
  if (AllAreOutputs(plan)) return {x, angles_.Rows(outputs)};
  const OutputRows chosen{out_x_.Rows(outputs), out_angles_.Rows(outputs)};
  backend_->GatherPassRows(*pass_, PassRows::kOutputs, x, chosen.x);
  backend_->GatherPassRows(*pass_, PassRows::kOutputs, angles_.Rows(inputs.rows), chosen.angles);
  return chosen;
}

void EagleHead::RunAttention(const Pass& pass, const OutputRows& rows, const KvView& kv) {
  const int outputs = rows.x.rows;
  const MatrixView q = q_.Rows(outputs);
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  backend_->MatMul({.x = rows.x, .w = weights_.q.get(), .bias = Floats(weights_.q_bias), .out = q});
  backend_->layer_ops()->Rope(q, config_.head_dim, rows.angles);
  backend_->AttentionMatMul(pass, {.q = q, .kv = kv, .layer = 0, .scale = scale}, *weights_.output,
                            Floats(weights_.output_bias), stream_.Rows(outputs));
}

void EagleHead::RunHead(int outputs) {
  const float eps = config_.rms_norm_eps;
  const MatrixView hidden = stream_.Rows(outputs);
  if (config_.norm_output) {
    backend_->layer_ops()->RmsNorm(hidden, Floats(weights_.norm), eps, next_.Rows(outputs));
  }
  const float* norm = Floats(weights_.head_norm);
  const MatrixView logits = logits_.Rows(outputs);
  if (weights_.head == nullptr) return target_.Project({hidden, norm, eps}, logits);
  backend_->MatMul(
      {.x = hidden, .norm = norm, .epsilon = eps, .w = weights_.head.get(), .out = logits});
}

}  // namespace talon
