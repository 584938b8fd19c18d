#include "model/decoder_weights.h"

#include <algorithm>
#include <utility>

#include "model/tensor_layout.h"

namespace talon {
namespace {

class Loader {
 public:
  Loader(WeightSource* source, Backend* backend, WeightFormat format)
      : source_(source), backend_(backend), format_(format) {}

  size_t matrix_bytes() const { return matrix_bytes_; }
  size_t other_bytes() const { return other_bytes_; }

  // The parts stacked into one float32 buffer; empty if there are none.
  Result<Buffer> Vector(const TensorParts& parts) {
    std::vector<float> values;
    for (const TensorSpec& part : parts) {
      TALON_ASSIGN_OR_RETURN(const HostMatrix vector, source_->Load(part));
      for (int64_t i = 0; i < vector.cols; ++i) {
        values.push_back(LoadElement(vector.data, vector.dtype, i));
      }
    }
    source_->Release();
    if (values.empty()) return Buffer();
    return Upload(values.data(), values.size() * sizeof(float));
  }

  Result<std::unique_ptr<Weight>> Matrix(const TensorParts& parts) {
    std::vector<HostMatrix> matrices;
    for (const TensorSpec& part : parts) {
      TALON_ASSIGN_OR_RETURN(const HostMatrix matrix, source_->Load(part));
      matrices.push_back(matrix);
    }
    auto packed = Pack(matrices);
    source_->Release();
    return packed;
  }

  // The embedding table and, if tied, the output matrix made from the same tensor.
  Status Embedding(const TensorParts& parts, DecoderWeights* weights, bool tied) {
    TALON_ASSIGN_OR_RETURN(const HostMatrix table, source_->Load(parts[0]));
    const auto elements = static_cast<size_t>(table.rows) * static_cast<size_t>(table.cols);
    TALON_ASSIGN_OR_RETURN(weights->embedding,
                           Upload(table.data, elements * DTypeSize(table.dtype)));
    weights->embedding_dtype = table.dtype;
    if (tied) {
      TALON_ASSIGN_OR_RETURN(weights->head, Pack({&table, 1}));
    }
    source_->Release();
    return OkStatus();
  }

 private:
  Result<Buffer> Upload(const void* data, size_t bytes) {
    TALON_ASSIGN_OR_RETURN(Buffer buffer, backend_->Allocate(bytes));
    backend_->CopyIn(buffer.data(), data, bytes);
    other_bytes_ += bytes;
    return buffer;
  }

  Result<std::unique_ptr<Weight>> Pack(std::span<const HostMatrix> parts) {
    // Files may mix types; a stack of them is kept exactly.
    const bool mixed = std::ranges::any_of(
        parts, [&](const HostMatrix& part) { return part.dtype != parts[0].dtype; });
    const bool widen = mixed && format_ == WeightFormat::kAsStored;
    TALON_ASSIGN_OR_RETURN(std::unique_ptr<Weight> weight,
                           backend_->PackWeight(parts, widen ? WeightFormat::kF32 : format_));
    matrix_bytes_ += weight->bytes();
    return weight;
  }

  WeightSource* source_;
  Backend* backend_;
  WeightFormat format_;
  size_t matrix_bytes_ = 0;
  size_t other_bytes_ = 0;
};

Result<LayerWeights> LoadLayer(const LayerLayout& layout, Loader* loader) {
  LayerWeights layer;
  TALON_ASSIGN_OR_RETURN(layer.input_norm, loader->Vector(layout.input_norm));
  TALON_ASSIGN_OR_RETURN(layer.qkv, loader->Matrix(layout.qkv));
  TALON_ASSIGN_OR_RETURN(layer.qkv_bias, loader->Vector(layout.qkv_bias));
  TALON_ASSIGN_OR_RETURN(layer.q_norm, loader->Vector(layout.q_norm));
  TALON_ASSIGN_OR_RETURN(layer.k_norm, loader->Vector(layout.k_norm));
  TALON_ASSIGN_OR_RETURN(layer.output, loader->Matrix(layout.output));
  TALON_ASSIGN_OR_RETURN(layer.output_bias, loader->Vector(layout.output_bias));
  TALON_ASSIGN_OR_RETURN(layer.post_norm, loader->Vector(layout.post_norm));
  TALON_ASSIGN_OR_RETURN(layer.gate_up, loader->Matrix(layout.gate_up));
  TALON_ASSIGN_OR_RETURN(layer.gate_up_bias, loader->Vector(layout.gate_up_bias));
  TALON_ASSIGN_OR_RETURN(layer.down, loader->Matrix(layout.down));
  TALON_ASSIGN_OR_RETURN(layer.down_bias, loader->Vector(layout.down_bias));
  return layer;
}

}  // namespace

Result<DecoderWeights> LoadDecoderWeights(const ModelConfig& config, WeightSource* source,
                                          Backend* backend, WeightFormat format,
                                          const std::function<void(double)>& progress) {
  const TensorLayout layout = LayoutOf(config);
  const double steps = config.num_layers + 2.0;
  double done = 0;
  const auto advance = [&] {
    if (progress) progress(++done / steps);
  };
  Loader loader(source, backend, format);
  DecoderWeights weights;
  TALON_RETURN_IF_ERROR(loader.Embedding(layout.embedding, &weights, config.tie_word_embeddings));
  advance();
  for (const LayerLayout& layer_layout : layout.layers) {
    TALON_ASSIGN_OR_RETURN(LayerWeights layer, LoadLayer(layer_layout, &loader));
    weights.layers.push_back(std::move(layer));
    advance();
  }
  TALON_ASSIGN_OR_RETURN(weights.final_norm, loader.Vector(layout.final_norm));
  if (!config.tie_word_embeddings) {
    TALON_ASSIGN_OR_RETURN(weights.head, loader.Matrix(layout.head));
  }
  advance();
  weights.matrix_bytes = loader.matrix_bytes();
  weights.bytes = loader.matrix_bytes() + loader.other_bytes();
  return weights;
}

}  // namespace talon
