#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/valid_values.h"
#include "compute/ranks/ranks.h"
#include "model/files/tensor_layout.h"
#include "model/files/weight_source.h"
#include "model/rope.h"

namespace talon {
Decoder::Decoder(ModelConfig config, ModelShard shard, Backend* backend, DecoderWeights weights)
    : config_(std::move(config)),
      shard_(std::move(shard)),
      backend_(backend),
      weights_(std::move(weights)),
      pass_(backend->NewPass(shard_.heads.count())) {}

Result<std::unique_ptr<Decoder>> Decoder::Load(const std::string& dir, Backend* backend,
                                               const LoadOptions& options) {
  TALON_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(dir));
  TALON_ASSIGN_OR_RETURN(const auto source, OpenWeightFiles(dir, config));
  return Create(config, backend, options, source.get());
}

Result<std::unique_ptr<Decoder>> Decoder::Random(const ModelConfig& config, Backend* backend,
                                                 const LoadOptions& options, uint64_t seed) {
  const auto source = NewRandomWeights(config.dtype, seed, config.experts.mxfp4);
  return Create(config, backend, options, source.get());
}

Result<std::unique_ptr<Decoder>> Decoder::Create(const ModelConfig& config, Backend* backend,
                                                 const LoadOptions& options, WeightSource* source) {
  TALON_RETURN_IF_ERROR(CheckRange("max_rows", options.max_rows, {.low = 1}));
  TALON_RETURN_IF_ERROR(CheckRange("max_output_rows", options.max_output_rows, {.low = 1}));
  Ranks* ranks = options.ranks;
  TALON_ASSIGN_OR_RETURN(
      const ModelShard shard,
      ranks == nullptr ? ShardOf(config, 0, 1)
                       : ShardOf(config, ranks->rank(), ranks->size(), backend->info().rank_split));
  TALON_ASSIGN_OR_RETURN(
      DecoderWeights weights,
      LoadDecoderWeights(config, shard, source, backend,
                         {options.weights, options.activations, options.progress}));
  std::unique_ptr<Decoder> decoder(new Decoder(config, shard, backend, std::move(weights)));
  if (!shard.whole()) {
    decoder->ranks_ = ranks;
    // The host finds out which rank has which experts' results.
    decoder->pass_->SetWaits(!backend->info().queues_exchanges || config.experts.count > 0);
    if (ranks->leads()) {
      decoder->leader_ = std::make_unique<RankLeader>(ranks, backend->kv_ops());
    }
  }
  TALON_RETURN_IF_ERROR(decoder->AllocateWorkspace(options));
  return decoder;
}

Status Decoder::AllocateWorkspace(const LoadOptions& options) {
  max_rows_ = options.max_rows;
  max_output_rows_ = std::min(options.max_output_rows, max_rows_);
  const RopeTable rope = ComputeRope(config_.rope, config_.head_dim,
                                     config_.max_position_embeddings, config_.max_context);
  rope_scale_ = rope.scale;
  const size_t rope_bytes = rope.inv_freq.size() * sizeof(float);
  TALON_ASSIGN_OR_RETURN(inv_freq_, backend_->Allocate(rope_bytes));
  backend_->CopyIn(inv_freq_.data(), rope.inv_freq.data(), rope_bytes);

  const int rotary = static_cast<int>(2 * rope.inv_freq.size());
  TALON_ASSIGN_OR_RETURN(stream_, NewScratch(backend_, max_rows_, config_.hidden_size));
  TALON_ASSIGN_OR_RETURN(angles_, NewScratch(backend_, max_rows_, rotary));
  TALON_ASSIGN_OR_RETURN(qkv_, NewScratch(backend_, max_rows_, q_size() + 2 * kv_size()));
  TALON_ASSIGN_OR_RETURN(hidden_, NewScratch(backend_, max_output_rows_, config_.hidden_size));
  if (shard_.rank == 0) {
    TALON_ASSIGN_OR_RETURN(logits_, NewScratch(backend_, max_output_rows_, config_.vocab_size));
  }
  if (!shard_.whole()) {
    TALON_ASSIGN_OR_RETURN(own_logits_,
                           NewScratch(backend_, max_output_rows_, shard_.vocab.count()));
    TALON_ASSIGN_OR_RETURN(projected_, NewScratch(backend_, max_output_rows_, config_.hidden_size));
  }
  return OkStatus();
}

size_t Decoder::workspace_bytes() const {
  size_t bytes = inv_freq_.bytes();
  for (const Scratch* scratch : {&stream_, &angles_, &qkv_, &hidden_, &logits_, &own_logits_,
                                 &projected_, &features_, &scores_, &own_scores_}) {
    bytes += scratch->buffer.bytes();
  }
  return bytes;
}

Status Decoder::SetCaptureLayers(const std::vector<int>& layers) {
  for (const int layer : layers) {
    const Range known{0, static_cast<double>(config_.num_layers)};
    TALON_RETURN_IF_ERROR(CheckRange("decoder: captured layer", layer, known));
  }
  if (layers == capture_layers_) return OkStatus();
  Scratch features;
  if (!layers.empty()) {
    const int cols = static_cast<int>(layers.size()) * config_.hidden_size;
    TALON_ASSIGN_OR_RETURN(features, NewScratch(backend_, max_rows_, cols));
  }
  features_ = std::move(features);
  capture_layers_ = layers;
  ++scratch_version_;
  return OkStatus();
}

Status Decoder::ReserveScores(int max_blocks) {
  const int layers = config_.num_layers;
  if (shard_.rank == 0) {
    TALON_ASSIGN_OR_RETURN(scores_,
                           NewScratch(backend_, layers * config_.num_kv_heads, max_blocks));
  }
  if (!shard_.whole()) {
    TALON_ASSIGN_OR_RETURN(own_scores_, NewScratch(backend_, layers * kv_heads(), max_blocks));
  }
  if (leader_ != nullptr) leader_->ReserveScores(max_blocks);
  ++scratch_version_;
  return OkStatus();
}

Status Decoder::CheckScores(const PassPlan& plan, const KvShape& kv) const {
  if (plan.scores.empty()) return OkStatus();
  const bool by_summaries = std::ranges::any_of(plan.scores, [](const ScoreRequest& request) {
    return request.scorer != BlockScorer::kAttention;
  });
  if (by_summaries && !kv.key_summaries) {
    return InvalidArgument("decoder: scores wanted, no key summaries");
  }
  const int limit = (shard_.whole() ? scores_ : own_scores_).all.cols;
  if (plan.num_scored_blocks() > limit) {
    return InvalidArgument("decoder: scores of {} blocks wanted, limit {}",
                           plan.num_scored_blocks(), limit);
  }
  return OkStatus();
}

MatrixView Decoder::LayerScores(const PassPlan& plan, int first, int count) const {
  const int heads = kv_heads();
  const int blocks = plan.num_scored_blocks();
  if (shard_.whole()) return scores_.all.Rows(first * heads, count * heads).Cols(0, blocks);
  // One behind the other, as AllScores sends them.
  return MatrixView{own_scores_.all.data, config_.num_layers * heads, blocks, blocks}.Rows(
      first * heads, count * heads);
}

// A message has a row for each layer, so that kv heads come in their order in every layer.
MatrixView Decoder::AllScores(const PassPlan& plan) {
  if (plan.scores.empty()) return {};
  const int layers = config_.num_layers;
  if (shard_.whole()) return LayerScores(plan, 0, layers);
  const int blocks = plan.num_scored_blocks();
  const int own = kv_heads() * blocks;
  const int all = config_.num_kv_heads * blocks;
  std::vector<int> bounds;
  for (int rank = 0; rank <= shard_.size; ++rank) bounds.push_back(rank * own);
  backend_->GatherColumns(ranks_, {own_scores_.all.data, layers, own, own}, bounds,
                          {scores_.all.data, layers, all, all});
  return {scores_.all.data, layers * config_.num_kv_heads, blocks, blocks};
}

const PassPlan& Decoder::OwnPlan(const PassPlan& plan) {
  if (shard_.whole() || !plan.HasPartialViews()) return plan;
  TakeLists(config_, shard_, plan, &own_plan_);
  return own_plan_;
}

PassLimits Decoder::limits() const {
  return {.what = "decoder",
          .max_rows = max_rows_,
          .max_output_rows = max_output_rows_,
          .vocab_size = config_.vocab_size,
          .max_position = config_.max_context,
          .num_layers = config_.num_layers,
          .kv_heads = kv_heads(),
          .head_dim = config_.head_dim};
}

Status Decoder::Forward(const PassPlan& plan, const KvView& kv, ForwardOutput* output,
                        const Prepare& prepare) {
  TALON_RETURN_IF_ERROR(CheckPass(plan, kv.shape, limits()));
  TALON_RETURN_IF_ERROR(CheckScores(plan, kv.shape));
  const auto outputs = static_cast<int>(plan.output_rows.size());
  *output = {};
  std::unique_lock<std::mutex> turn;
  if (leader_ != nullptr) turn = leader_->BeginPass(plan, kv);
  backend_->LoadPass(OwnPlan(plan), kv.shape, pass_.get());
  if (prepare) prepare(pass_.get());
  // The ops' arguments follow from the pass's shape, the cache and these addresses.
  const uint64_t key = IdentityOf(kv) + scratch_version_;
  backend_->Record(pass_.get(), /*second=*/nullptr, key, [&] { RunPass(plan, kv); });
  const MatrixView scores = AllScores(plan);
  EndPass(plan);
  output->stored_layers = pass_->stored_layers();
  if (outputs > 0 && shard_.rank == 0) {
    output->hidden = hidden_.Rows(outputs);
    output->logits = logits_.Rows(outputs);
  }
  if (!capture_layers_.empty()) {
    output->features = features_.Rows(static_cast<int>(plan.feature_rows.size()));
  }
  if (shard_.rank == 0) output->scores = scores;
  return OkStatus();
}

void Decoder::RunPass(const PassPlan& plan, const KvView& kv) {
  const int rows = plan.num_rows();
  const int half = angles_.all.cols / 2;
  backend_->RopeAngles(*pass_, Floats(inv_freq_), half, rope_scale_, angles_.Rows(rows));
  backend_->Embed(*pass_, weights_.embedding.data.data(), weights_.embedding.dtype,
                  stream_.Rows(rows));
  for (int i = 0; i < config_.num_layers; ++i) {
    CaptureInput(i, plan);
    RunLayer(i, plan, kv);
  }
  CaptureInput(config_.num_layers, plan);
  RunHead(plan);
}

void Decoder::RunLayer(int index, const PassPlan& plan, const KvView& kv) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  const int rows = plan.num_rows();
  const float eps = config_.rms_norm_eps;
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  const MatrixView x = stream_.Rows(rows);
  const MatrixView qkv = qkv_.Rows(rows);
  const MatrixView q = qkv.Cols(0, q_size());
  const MatrixView k = qkv.Cols(q.cols, kv_size());
  const MatrixView v = qkv.Cols(q.cols + k.cols, kv_size());

  backend_->ProjectQkv(
      *pass_, {x, Floats(layer.input_norm), eps, layer.qkv.get(), Floats(layer.qkv_bias), qkv},
      {q, k, v, Floats(layer.q_norm), Floats(layer.k_norm), eps}, angles_.Rows(rows), kv, index);
  AttentionInput attention = {q,     kv, index, scale, config_.WindowOf(index), Floats(layer.sinks),
                              ranks_};
  if (!plan.scores.empty()) {
    attention.scores = LayerScores(plan, index, 1);
    backend_->kv_ops()->ScoreBlocks(*pass_, q, kv, index, attention.scores);
  }
  backend_->AttentionMatMul(*pass_, attention, *layer.output, Floats(layer.output_bias), x);
  if (layer.experts.empty()) {
    FeedForwardWeights mlp = layer.mlp.view();
    mlp.ranks = ranks_;
    backend_->FeedForward(x, Floats(layer.post_norm), eps, mlp);
  } else {
    backend_->expert_ops()->FeedForward(
        x, Floats(layer.post_norm), eps,
        {layer.router.get(), Floats(layer.router_bias), layer.expert_views,
         layer.expert_table.data(), config_.experts.rule, ranks_, shard_.experts.first});
  }
}

size_t Decoder::weight_bytes_per_pass(int rows) const {
  const double experts = config_.experts.count;
  if (experts == 0) return weights_.matrix_bytes;
  const double missed = std::pow(1 - config_.experts.rule.per_row / experts, rows);
  return weights_.matrix_bytes -
         static_cast<size_t>(static_cast<double>(weights_.expert_bytes) * missed);
}

void Decoder::CaptureInput(int index, const PassPlan& plan) {
  const auto rows = static_cast<int>(plan.feature_rows.size());
  if (rows == 0) return;
  const int hidden = config_.hidden_size;
  for (size_t i = 0; i < capture_layers_.size(); ++i) {
    if (capture_layers_[i] != index) continue;
    backend_->GatherPassRows(*pass_, PassRows::kFeatures, stream_.Rows(plan.num_rows()),
                             features_.Rows(rows).Cols(static_cast<int>(i) * hidden, hidden));
  }
}

void Decoder::RunHead(const PassPlan& plan) {
  const auto outputs = static_cast<int>(plan.output_rows.size());
  if (outputs == 0) return;
  const MatrixView hidden = hidden_.Rows(outputs);
  backend_->GatherPassRows(*pass_, PassRows::kOutputs, stream_.Rows(plan.num_rows()), hidden);
  backend_->layer_ops()->RmsNorm(hidden, Floats(weights_.final_norm), config_.rms_norm_eps, hidden);
  ProjectOwn(hidden, shard_.rank == 0 ? logits_.Rows(outputs) : MatrixView());
}

void Decoder::ProjectOwn(MatrixView hidden, MatrixView logits) const {
  const MatrixView own = shard_.whole() ? logits : own_logits_.Rows(hidden.rows);
  backend_->MatMul({.x = hidden, .w = weights_.head.get(), .out = own});
  if (shard_.whole()) return;
  backend_->GatherColumns(ranks_, own, shard_.vocab_bounds, logits);
}

void Decoder::Project(const HiddenStates& hidden, MatrixView logits) const {
  if (shard_.whole()) {
    return backend_->MatMul({.x = hidden.rows,
                             .norm = hidden.norm,
                             .epsilon = hidden.epsilon,
                             .w = weights_.head.get(),
                             .out = logits});
  }
  for (int first = 0; first < logits.rows; first += max_output_rows_) {
    const int count = std::min(max_output_rows_, logits.rows - first);
    MatrixView rows = hidden.rows.Rows(first, count);
    if (hidden.norm != nullptr) {
      backend_->layer_ops()->RmsNorm(rows, hidden.norm, hidden.epsilon, projected_.Rows(count));
      rows = projected_.Rows(count);
    }
    leader_->Project(ReadRows(rows), rows.cols,
                     [&] { ProjectOwn(rows, logits.Rows(first, count)); });
  }
}

void Decoder::FollowProject(std::span<const std::vector<float>> rows) const {
  const MatrixView hidden = projected_.Rows(static_cast<int>(rows.size()));
  for (int r = 0; r < hidden.rows; ++r) {
    backend_->CopyIn(hidden.Rows(r, 1).data, rows[r].data(), rows[r].size() * sizeof(float));
  }
  ProjectOwn(hidden, {});
}

std::vector<float> Decoder::ReadRows(MatrixView x) const {
  std::vector<float> values(static_cast<size_t>(x.rows) * x.stride);
  if (x.rows == 0) return values;
  // The last row need not have room behind it.
  backend_->CopyOut(values.data(), x.data, (values.size() - x.stride + x.cols) * sizeof(float));
  if (x.stride == x.cols) return values;
  for (int r = 1; r < x.rows; ++r) {
    std::copy_n(values.begin() + r * x.stride, x.cols, values.begin() + int64_t{r} * x.cols);
  }
  values.resize(static_cast<size_t>(x.rows) * x.cols);
  return values;
}

void Decoder::Exchange(int rows) const {
  if (leader_ == nullptr) return ExchangeOwn(rows);
  leader_->Exchange(rows, [&] { ExchangeOwn(rows); });
}

void Decoder::ExchangeOwn(int rows) const {
  for (int i = 0; i < 2 * config_.num_layers; ++i) ranks_->Sum(projected_.Rows(rows));
  ranks_->GatherColumns(own_logits_.Rows(rows), shard_.vocab_bounds,
                        shard_.rank == 0 ? logits_.Rows(rows) : MatrixView());
}

void Decoder::EndPass(const PassPlan& plan) {
  if (shard_.whole()) return;
  const std::vector<float> x = ReadRows(stream_.Rows(plan.num_rows()));
  RankHash hash;
  hash.Add({reinterpret_cast<const uint8_t*>(x.data()), x.size() * sizeof(float)});
  activations_hash_ = hash.value();
  if (leader_ != nullptr) leader_->EndPass(activations_hash_);
}

}  // namespace talon
