#include "model/heads/eagle3_head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "model/rope.h"

namespace talon {
namespace {

const float* Floats(const Buffer& buffer) { return static_cast<const float*>(buffer.data()); }

// Many heads state fewer positions than they are run at; it works, but may draft worse there.
void WarnOfLongPositions(const std::string& dir, const Eagle3Config& config, int max_length) {
  const bool scaled = config.rope.kind != RopeKind::kDefault;
  if (scaled || config.max_position_embeddings >= max_length) return;
  LogWarning("{}: the head states {} positions, sequences may have {}; acceptance may fall there",
             dir, config.max_position_embeddings, max_length);
}

int MaxLength(const Eagle3Head::Options& options, const Decoder& target) {
  return options.max_length > 0 ? options.max_length : target.config().max_context;
}

}  // namespace

Eagle3Head::Eagle3Head(Eagle3Config config, const Decoder& target, Backend* backend,
                       Eagle3Weights weights)
    : config_(std::move(config)),
      target_(target),
      backend_(backend),
      weights_(std::move(weights)),
      pass_(backend->NewPass(config_.num_heads)),
      attend_pass_(backend->NewPass(config_.num_heads)) {}

Result<std::unique_ptr<Eagle3Head>> Eagle3Head::Load(const std::string& dir, const Decoder& target,
                                                     Backend* backend, const Options& options) {
  TALON_ASSIGN_OR_RETURN(Eagle3Config config,
                         LoadEagle3Config(dir, target.config(), options.capture_layers));
  TALON_ASSIGN_OR_RETURN(Eagle3Weights weights,
                         LoadEagle3Weights(dir, config, backend, options.weights));
  WarnOfLongPositions(dir, config, MaxLength(options, target));
  return Create(std::move(config), target, backend, std::move(weights), options);
}

Result<std::unique_ptr<Eagle3Head>> Eagle3Head::Random(const Decoder& target, Backend* backend,
                                                       const Options& options, uint64_t seed) {
  constexpr float kCertain = 4096;  // the best logits of random weights lie close together
  Eagle3Config config = UsualEagle3Config(target.config());
  config.logit_scale = kCertain;
  if (!options.capture_layers.empty()) config.capture_layers = options.capture_layers;
  TALON_ASSIGN_OR_RETURN(Eagle3Weights weights,
                         RandomEagle3Weights(config, backend, options.weights, seed));
  return Create(std::move(config), target, backend, std::move(weights), options);
}

Result<std::unique_ptr<Eagle3Head>> Eagle3Head::Create(Eagle3Config config, const Decoder& target,
                                                       Backend* backend, Eagle3Weights weights,
                                                       const Options& options) {
  if (options.max_rows < 1 || options.max_output_rows < 1) {
    return InvalidArgument("eagle3: max_rows {} and max_output_rows {} must be at least 1",
                           options.max_rows, options.max_output_rows);
  }
  std::unique_ptr<Eagle3Head> head(
      new Eagle3Head(std::move(config), target, backend, std::move(weights)));
  TALON_RETURN_IF_ERROR(head->AllocateRope(MaxLength(options, target)));
  TALON_RETURN_IF_ERROR(head->AllocateWorkspace(options));
  return head;
}

Status Eagle3Head::AllocateRope(int max_length) {
  const RopeTable rope =
      ComputeRope(config_.rope, config_.head_dim, config_.max_position_embeddings, max_length);
  rope_scale_ = rope.scale;
  const size_t bytes = rope.inv_freq.size() * sizeof(float);
  TALON_ASSIGN_OR_RETURN(inv_freq_, backend_->Allocate(bytes));
  backend_->CopyIn(inv_freq_.data(), rope.inv_freq.data(), bytes);
  return OkStatus();
}

Status Eagle3Head::AllocateWorkspace(const Options& options) {
  max_rows_ = options.max_rows;
  max_output_rows_ = std::min(options.max_output_rows, max_rows_);
  const int hidden = config_.hidden_size;
  const int rotary = config_.rope.RotaryDim(config_.head_dim);
  const struct {
    Scratch* scratch;
    int rows;
    int cols;
  } shapes[] = {{&pairs_, max_rows_, 2 * hidden},
                {&angles_, max_rows_, rotary},
                {&kv_, max_rows_, 2 * config_.kv_size()},
                {&out_pairs_, max_output_rows_, 2 * hidden},
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

KvShape Eagle3Head::kv_shape() const {
  return {.num_layers = 1, .kv_heads = config_.num_kv_heads, .head_dim = config_.head_dim};
}

void Eagle3Head::Fuse(MatrixView features, MatrixView fused) {
  TALON_CHECK(features.rows == fused.rows && features.cols == config_.features_size() &&
              fused.cols == config_.hidden_size);
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
void Eagle3Head::NormFeatures(MatrixView features) {
  const MatrixView normed = features_.Rows(features.rows);
  const float eps = config_.rms_norm_eps;
  if (config_.norm_before_fc) {
    backend_->RmsNorm(features, Floats(weights_.concat_norm), eps, normed);
  }
  const MatrixView& x = config_.norm_before_fc ? normed : features;
  const int size = config_.target_hidden_size;
  for (size_t i = 0; i < weights_.fc_norms.size(); ++i) {
    const int start = static_cast<int>(i) * size;
    backend_->RmsNorm(x.Cols(start, size), Floats(weights_.fc_norms[i]), eps,
                      normed.Cols(start, size));
  }
}

// Positions have no limit: the angles are computed, not looked up.
PassLimits Eagle3Head::limits() const {
  return {.what = "eagle3",
          .max_rows = max_rows_,
          .max_output_rows = max_output_rows_,
          .vocab_size = config_.vocab_size,
          .max_position = std::numeric_limits<int>::max(),
          .num_layers = 1,
          .kv_heads = config_.num_kv_heads,
          .head_dim = config_.head_dim};
}

Status Eagle3Head::CheckPlans(const PassPlan& plan, const PassPlan& attend, const KvShape& kv,
                              const MatrixView& inputs) const {
  TALON_RETURN_IF_ERROR(CheckPass(plan, kv, limits()));
  const auto outputs = static_cast<int>(plan.output_rows.size());
  if (attend.num_rows() != outputs) {
    return InvalidArgument("eagle3: {} rows attend, {} outputs wanted", attend.num_rows(), outputs);
  }
  if (inputs.rows != plan.num_rows() || inputs.cols != config_.hidden_size) {
    return InvalidArgument("eagle3: inputs [{}, {}], expected [{}, {}]", inputs.rows, inputs.cols,
                           plan.num_rows(), config_.hidden_size);
  }
  if (&attend == &plan || outputs == 0) return OkStatus();
  return CheckPass(attend, kv, limits());
}

Status Eagle3Head::Forward(const PassPlan& plan, const PassPlan& attend, const KvView& kv,
                           MatrixView inputs, Eagle3Output* output, const Prepare& prepare) {
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

bool Eagle3Head::AllAreOutputs(const PassPlan& plan) const {
  const auto rows = std::span(all_rows_).first(static_cast<size_t>(plan.num_rows()));
  return std::ranges::equal(plan.output_rows, rows);
}

void Eagle3Head::ReadInputs(MatrixView inputs) {
  const int hidden = config_.hidden_size;
  const MatrixView embedded = pairs_.Rows(inputs.rows).Cols(0, hidden);
  const MatrixView feature = pairs_.Rows(inputs.rows).Cols(hidden, hidden);
  const bool own = weights_.embedding.data.data() != nullptr;
  const WeightTable& table = own ? weights_.embedding : target_.weights().embedding;
  backend_->Embed(*pass_, table.data.data(), table.dtype, embedded);
  backend_->RmsNorm(embedded, Floats(weights_.embed_norm), config_.rms_norm_eps, embedded);
  backend_->RmsNorm(inputs, Floats(weights_.hidden_norm), config_.rms_norm_eps, feature);
}

void Eagle3Head::StoreKeys(int rows, const KvView& kv) {
  const MatrixView keys_values = kv_.Rows(rows);
  const MatrixView k = keys_values.Cols(0, config_.kv_size());
  const MatrixView v = keys_values.Cols(k.cols, config_.kv_size());
  const MatrixView angles = angles_.Rows(rows);
  backend_->RopeAngles(*pass_, Floats(inv_freq_), angles.cols / 2, rope_scale_, angles);
  backend_->MatMul({.x = pairs_.Rows(rows),
                    .w = weights_.kv.get(),
                    .bias = Floats(weights_.kv_bias),
                    .out = keys_values});
  backend_->Rope(k, config_.head_dim, angles);
  backend_->kv_ops()->StoreKv(*pass_, k, v, kv, /*layer=*/0);
}

Eagle3Head::OutputRows Eagle3Head::SelectOutputs(const PassPlan& plan, MatrixView inputs) {
  const auto outputs = static_cast<int>(plan.output_rows.size());
  const MatrixView pairs = pairs_.Rows(inputs.rows);
  const MatrixView features = pairs.Cols(config_.hidden_size, config_.hidden_size);
  const MatrixView& residual = config_.norm_before_residual ? features : inputs;
  backend_->GatherPassRows(*pass_, PassRows::kOutputs, residual, stream_.Rows(outputs));
  if (AllAreOutputs(plan)) return {pairs, angles_.Rows(outputs)};
  const OutputRows chosen{out_pairs_.Rows(outputs), out_angles_.Rows(outputs)};
  backend_->GatherPassRows(*pass_, PassRows::kOutputs, pairs, chosen.pairs);
  backend_->GatherPassRows(*pass_, PassRows::kOutputs, angles_.Rows(inputs.rows), chosen.angles);
  return chosen;
}

void Eagle3Head::RunAttention(const Pass& pass, const OutputRows& rows, const KvView& kv) {
  const int outputs = rows.pairs.rows;
  const MatrixView q = q_.Rows(outputs);
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  backend_->MatMul(
      {.x = rows.pairs, .w = weights_.q.get(), .bias = Floats(weights_.q_bias), .out = q});
  backend_->Rope(q, config_.head_dim, rows.angles);
  backend_->AttentionMatMul(pass, {.q = q, .kv = kv, .layer = 0, .scale = scale}, *weights_.output,
                            Floats(weights_.output_bias), stream_.Rows(outputs));
}

void Eagle3Head::RunHead(int outputs) {
  const float eps = config_.rms_norm_eps;
  const MatrixView hidden = stream_.Rows(outputs);
  if (config_.norm_output) {
    backend_->RmsNorm(hidden, Floats(weights_.norm), eps, next_.Rows(outputs));
  }
  const Weight& head = weights_.head != nullptr ? *weights_.head : *target_.weights().head;
  backend_->MatMul({.x = hidden,
                    .norm = Floats(weights_.head_norm),
                    .epsilon = eps,
                    .w = &head,
                    .out = logits_.Rows(outputs)});
}

}  // namespace talon
