#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
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

Result<Decoder::Scratch> Decoder::NewScratch(int rows, int cols) {
  constexpr int kAlign = 16;  // floats: rows start on cache lines
  const int64_t stride = (static_cast<int64_t>(cols) + kAlign - 1) / kAlign * kAlign;
  Scratch scratch;
  TALON_ASSIGN_OR_RETURN(scratch.buffer,
                         backend_->Allocate(static_cast<size_t>(rows * stride) * sizeof(float)));
  scratch.all = {static_cast<float*>(scratch.buffer.data()), rows, cols, stride};
  return scratch;
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
  TALON_ASSIGN_OR_RETURN(stream_, NewScratch(max_rows_, config_.hidden_size));
  TALON_ASSIGN_OR_RETURN(normed_, NewScratch(max_rows_, config_.hidden_size));
  TALON_ASSIGN_OR_RETURN(angles_, NewScratch(max_rows_, rotary));
  TALON_ASSIGN_OR_RETURN(qkv_, NewScratch(max_rows_, q + 2 * kv));
  TALON_ASSIGN_OR_RETURN(attended_, NewScratch(max_rows_, q));
  TALON_ASSIGN_OR_RETURN(gate_up_, NewScratch(max_rows_, 2 * ffn));
  TALON_ASSIGN_OR_RETURN(gated_, NewScratch(max_rows_, ffn));
  TALON_ASSIGN_OR_RETURN(hidden_, NewScratch(max_output_rows_, config_.hidden_size));
  TALON_ASSIGN_OR_RETURN(logits_, NewScratch(max_output_rows_, config_.vocab_size));
  all_rows_.resize(static_cast<size_t>(max_rows_));
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
  return OkStatus();
}

size_t Decoder::workspace_bytes() const {
  size_t bytes = inv_freq_.bytes();
  for (const Scratch* scratch : {&stream_, &normed_, &angles_, &qkv_, &attended_, &gate_up_,
                                 &gated_, &hidden_, &logits_, &features_}) {
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
  Scratch features;
  if (!layers.empty()) {
    const int cols = static_cast<int>(layers.size()) * config_.hidden_size;
    TALON_ASSIGN_OR_RETURN(features, NewScratch(max_rows_, cols));
  }
  features_ = std::move(features);
  capture_layers_ = layers;
  return OkStatus();
}

Status Decoder::CheckRow(const PassPlan& plan, int row, const KvShape& kv) const {
  const auto i = static_cast<size_t>(row);
  if (plan.tokens[i] < 0 || plan.tokens[i] >= config_.vocab_size) {
    return OutOfRange("decoder: row {} has token {}, vocabulary {}", row, plan.tokens[i],
                      config_.vocab_size);
  }
  if (plan.positions[i] < 0 || plan.positions[i] >= config_.max_context) {
    return OutOfRange("decoder: row {} has position {}, limit {}", row, plan.positions[i],
                      config_.max_context);
  }
  const int64_t slots = static_cast<int64_t>(kv.num_blocks) * kv.block_size;
  if (plan.slots[i] < -1 || plan.slots[i] >= slots) {
    return OutOfRange("decoder: row {} has slot {}, the cache has {}", row, plan.slots[i], slots);
  }
  return OkStatus();
}

Status Decoder::CheckPlan(const PassPlan& plan, const KvShape& kv) const {
  const int rows = plan.num_rows();
  const auto outputs = static_cast<int>(plan.output_rows.size());
  if (rows < 1 || rows > max_rows_) {
    return InvalidArgument("decoder: {} rows in a pass, expected 1 to {}", rows, max_rows_);
  }
  if (outputs > max_output_rows_) {
    return InvalidArgument("decoder: logits of {} rows wanted, limit {}", outputs,
                           max_output_rows_);
  }
  const size_t size = plan.tokens.size();
  if (plan.positions.size() != size || plan.slots.size() != size ||
      plan.prefix_len.size() != size) {
    return InvalidArgument("decoder: plan of {} tokens has {} positions, {} slots, {} prefixes",
                           size, plan.positions.size(), plan.slots.size(), plan.prefix_len.size());
  }
  if (kv.num_layers != config_.num_layers || kv.kv_heads != config_.num_kv_heads ||
      kv.head_dim != config_.head_dim) {
    return InvalidArgument(
        "decoder: cache of {} layers x {} heads x {}, the model has {} x {} x {}", kv.num_layers,
        kv.kv_heads, kv.head_dim, config_.num_layers, config_.num_kv_heads, config_.head_dim);
  }
  for (int row = 0; row < rows; ++row) TALON_RETURN_IF_ERROR(CheckRow(plan, row, kv));
  for (int s = 0; s < plan.num_sequences(); ++s) {
    const int last = plan.sequence_rows[static_cast<size_t>(s) + 1] - 1;
    if (const int place = plan.PlaceOfRow(s, last); place < 0 && ~place >= kv.staging_rows) {
      return OutOfRange("decoder: row {} is staged at {}, the cache has {} staging rows", last,
                        ~place, kv.staging_rows);
    }
  }
  for (const int32_t row : plan.output_rows) {
    if (row < 0 || row >= rows) {
      return OutOfRange("decoder: logits of row {} wanted, the pass has {}", row, rows);
    }
  }
  return OkStatus();
}

Status Decoder::Forward(const PassPlan& plan, const KvView& kv, ForwardOutput* output) {
  TALON_RETURN_IF_ERROR(CheckPlan(plan, kv.shape));
  const int rows = plan.num_rows();
  const int half = angles_.all.cols / 2;
  *output = {};
  backend_->LoadPass(plan, kv.shape, pass_.get());
  backend_->RopeAngles(*pass_, Floats(inv_freq_), half, rope_scale_, angles_.Rows(rows));
  backend_->Embed(*pass_, weights_.embedding.data(), weights_.embedding_dtype, stream_.Rows(rows));
  for (int i = 0; i < config_.num_layers; ++i) {
    CaptureInput(i, rows);
    RunLayer(i, rows, kv);
  }
  CaptureInput(config_.num_layers, rows);
  RunHead(plan, output);
  output->features = capture_layers_.empty() ? MatrixView{} : features_.Rows(rows);
  return OkStatus();
}

void Decoder::RunLayer(int index, int rows, const KvView& kv) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
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

void Decoder::CaptureInput(int index, int rows) {
  const int hidden = config_.hidden_size;
  for (size_t i = 0; i < capture_layers_.size(); ++i) {
    if (capture_layers_[i] != index) continue;
    backend_->GatherRows(stream_.Rows(rows), std::span(all_rows_).first(static_cast<size_t>(rows)),
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
