#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/rope.h"
#include "model/tensor_layout.h"
#include "model/weight_source.h"

namespace talon {
namespace {

const float* Floats(const Buffer& buffer) { return static_cast<const float*>(buffer.data()); }

}  // namespace

Decoder::Decoder(ModelConfig config, Backend* backend, DecoderWeights weights)
    : config_(std::move(config)),
      backend_(backend),
      weights_(std::move(weights)),
      pass_(backend->NewPass()) {}

Result<std::unique_ptr<Decoder>> Decoder::Load(const std::string& dir, Backend* backend,
                                               const LoadOptions& options) {
  TALON_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(dir));
  TALON_ASSIGN_OR_RETURN(const auto source, OpenWeightFiles(dir, LayoutOf(config)));
  return Create(config, backend, options, source.get());
}

Result<std::unique_ptr<Decoder>> Decoder::Random(const ModelConfig& config, Backend* backend,
                                                 const LoadOptions& options, uint64_t seed) {
  const auto source = NewRandomWeights(config.dtype, seed);
  return Create(config, backend, options, source.get());
}

Result<std::unique_ptr<Decoder>> Decoder::Create(const ModelConfig& config, Backend* backend,
                                                 const LoadOptions& options, WeightSource* source) {
  if (options.max_rows < 1 || options.max_output_rows < 1) {
    return InvalidArgument("decoder: max_rows {} and max_output_rows {} must be at least 1",
                           options.max_rows, options.max_output_rows);
  }
  TALON_ASSIGN_OR_RETURN(
      DecoderWeights weights,
      LoadDecoderWeights(config, source, backend, options.weights, options.progress));
  std::unique_ptr<Decoder> decoder(new Decoder(config, backend, std::move(weights)));
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

  const int q = config_.q_size();
  const int kv = config_.kv_size();
  const int ffn = config_.intermediate_size;
  const int rotary = static_cast<int>(2 * rope.inv_freq.size());
  TALON_ASSIGN_OR_RETURN(stream_, NewScratch(backend_, max_rows_, config_.hidden_size));
  TALON_ASSIGN_OR_RETURN(normed_, NewScratch(backend_, max_rows_, config_.hidden_size));
  TALON_ASSIGN_OR_RETURN(angles_, NewScratch(backend_, max_rows_, rotary));
  TALON_ASSIGN_OR_RETURN(qkv_, NewScratch(backend_, max_rows_, q + 2 * kv));
  TALON_ASSIGN_OR_RETURN(attended_, NewScratch(backend_, max_rows_, q));
  TALON_ASSIGN_OR_RETURN(gate_up_, NewScratch(backend_, max_rows_, 2 * ffn));
  TALON_ASSIGN_OR_RETURN(gated_, NewScratch(backend_, max_rows_, ffn));
  TALON_ASSIGN_OR_RETURN(hidden_, NewScratch(backend_, max_output_rows_, config_.hidden_size));
  TALON_ASSIGN_OR_RETURN(logits_, NewScratch(backend_, max_output_rows_, config_.vocab_size));
  return OkStatus();
}

size_t Decoder::workspace_bytes() const {
  size_t bytes = inv_freq_.bytes();
  for (const Scratch* scratch : {&stream_, &normed_, &angles_, &qkv_, &attended_, &gate_up_,
                                 &gated_, &hidden_, &logits_, &features_, &scores_}) {
    bytes += scratch->buffer.bytes();
  }
  return bytes;
}

Status Decoder::SetCaptureLayers(const std::vector<int>& layers) {
  for (const int layer : layers) {
    if (layer < 0 || layer > config_.num_layers) {
      return InvalidArgument("decoder: cannot capture layer {}, expected 0 to {}", layer,
                             config_.num_layers);
    }
  }
  if (layers == capture_layers_) return OkStatus();
  Scratch features;
  if (!layers.empty()) {
    const int cols = static_cast<int>(layers.size()) * config_.hidden_size;
    TALON_ASSIGN_OR_RETURN(features, NewScratch(backend_, max_rows_, cols));
  }
  features_ = std::move(features);
  capture_layers_ = layers;
  return OkStatus();
}

Status Decoder::ReserveScores(int max_blocks) {
  const int lists = config_.num_layers * config_.num_kv_heads;
  TALON_ASSIGN_OR_RETURN(scores_, NewScratch(backend_, lists, max_blocks));
  return OkStatus();
}

Status Decoder::CheckScores(const PassPlan& plan, const KvShape& kv) const {
  if (plan.scores.empty()) return OkStatus();
  if (!kv.key_summaries) return InvalidArgument("decoder: scores wanted, no key summaries");
  if (plan.num_scored_blocks() > scores_.all.cols) {
    return InvalidArgument("decoder: scores of {} blocks wanted, limit {}",
                           plan.num_scored_blocks(), scores_.all.cols);
  }
  return OkStatus();
}

MatrixView Decoder::LayerScores(const PassPlan& plan, int first, int count) const {
  const int heads = config_.num_kv_heads;
  return scores_.all.Rows(first * heads, count * heads).Cols(0, plan.num_scored_blocks());
}

PassLimits Decoder::limits() const {
  return {.what = "decoder",
          .max_rows = max_rows_,
          .max_output_rows = max_output_rows_,
          .vocab_size = config_.vocab_size,
          .max_position = config_.max_context,
          .num_layers = config_.num_layers,
          .kv_heads = config_.num_kv_heads,
          .head_dim = config_.head_dim};
}

Status Decoder::Forward(const PassPlan& plan, const KvView& kv, ForwardOutput* output) {
  TALON_RETURN_IF_ERROR(CheckPass(plan, kv.shape, limits()));
  TALON_RETURN_IF_ERROR(CheckScores(plan, kv.shape));
  const int rows = plan.num_rows();
  const int half = angles_.all.cols / 2;
  *output = {};
  backend_->LoadPass(plan, kv.shape, pass_.get());
  backend_->RopeAngles(*pass_, Floats(inv_freq_), half, rope_scale_, angles_.Rows(rows));
  backend_->Embed(*pass_, weights_.embedding.data.data(), weights_.embedding.dtype,
                  stream_.Rows(rows));
  for (int i = 0; i < config_.num_layers; ++i) {
    CaptureInput(i, plan);
    RunLayer(i, plan, kv);
  }
  CaptureInput(config_.num_layers, plan);
  RunHead(plan, output);
  if (!capture_layers_.empty()) {
    output->features = features_.Rows(static_cast<int>(plan.feature_rows.size()));
  }
  if (!plan.scores.empty()) output->scores = LayerScores(plan, 0, config_.num_layers);
  return OkStatus();
}

void Decoder::RunLayer(int index, const PassPlan& plan, const KvView& kv) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  const int rows = plan.num_rows();
  const int head_dim = config_.head_dim;
  const float eps = config_.rms_norm_eps;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const MatrixView x = stream_.Rows(rows);
  const MatrixView normed = normed_.Rows(rows);
  const MatrixView angles = angles_.Rows(rows);
  const MatrixView qkv = qkv_.Rows(rows);
  const MatrixView q = qkv.Cols(0, config_.q_size());
  const MatrixView k = qkv.Cols(q.cols, config_.kv_size());
  const MatrixView v = qkv.Cols(q.cols + k.cols, config_.kv_size());

  backend_->RmsNorm(x, Floats(layer.input_norm), eps, normed);
  backend_->MatMul(normed, *layer.qkv, Floats(layer.qkv_bias), qkv, /*accumulate=*/false);
  if (config_.qk_norm) {
    backend_->RmsNormHeads(q, head_dim, Floats(layer.q_norm), eps);
    backend_->RmsNormHeads(k, head_dim, Floats(layer.k_norm), eps);
  }
  backend_->Rope(q, head_dim, angles);
  backend_->Rope(k, head_dim, angles);
  if (!plan.scores.empty()) {
    backend_->ScoreBlocks(*pass_, q, kv, index, LayerScores(plan, index, 1));
  }
  backend_->StoreKv(*pass_, k, v, kv, index);
  backend_->Attention(*pass_, q, kv, index, scale, attended_.Rows(rows));
  backend_->MatMul(attended_.Rows(rows), *layer.output, Floats(layer.output_bias), x,
                   /*accumulate=*/true);

  backend_->RmsNorm(x, Floats(layer.post_norm), eps, normed);
  backend_->MatMul(normed, *layer.gate_up, Floats(layer.gate_up_bias), gate_up_.Rows(rows),
                   /*accumulate=*/false);
  backend_->SwiGlu(gate_up_.Rows(rows), gated_.Rows(rows));
  backend_->MatMul(gated_.Rows(rows), *layer.down, Floats(layer.down_bias), x,
                   /*accumulate=*/true);
}

void Decoder::CaptureInput(int index, const PassPlan& plan) {
  const auto rows = static_cast<int>(plan.feature_rows.size());
  if (rows == 0) return;
  const int hidden = config_.hidden_size;
  for (size_t i = 0; i < capture_layers_.size(); ++i) {
    if (capture_layers_[i] != index) continue;
    backend_->GatherRows(stream_.Rows(plan.num_rows()), plan.feature_rows,
                         features_.Rows(rows).Cols(static_cast<int>(i) * hidden, hidden));
  }
}

void Decoder::RunHead(const PassPlan& plan, ForwardOutput* output) {
  const auto outputs = static_cast<int>(plan.output_rows.size());
  if (outputs == 0) return;
  output->hidden = hidden_.Rows(outputs);
  output->logits = logits_.Rows(outputs);
  backend_->GatherRows(stream_.Rows(plan.num_rows()), plan.output_rows, output->hidden);
  backend_->RmsNorm(output->hidden, Floats(weights_.final_norm), config_.rms_norm_eps,
                    output->hidden);
  backend_->MatMul(output->hidden, *weights_.head, /*bias=*/nullptr, output->logits,
                   /*accumulate=*/false);
}

}  // namespace talon
