#include "model/heads/eagle_weights.h"

#include <utility>

#include "model/files/safetensors.h"
#include "model/files/weight_source.h"
#include "model/heads/eagle_layout.h"
#include "model/heads/head_file.h"

namespace talon {
namespace {

Status LoadLayer(const EagleLayout& layout, WeightLoader* loader, EagleWeights* weights) {
  TALON_ASSIGN_OR_RETURN(weights->embed_norm, loader->Vector(layout.embed_norm));
  TALON_ASSIGN_OR_RETURN(weights->hidden_norm, loader->Vector(layout.hidden_norm));
  TALON_ASSIGN_OR_RETURN(weights->q, loader->Matrix(layout.q));
  TALON_ASSIGN_OR_RETURN(weights->q_bias, loader->Vector(layout.q_bias));
  TALON_ASSIGN_OR_RETURN(weights->kv, loader->Matrix(layout.kv));
  TALON_ASSIGN_OR_RETURN(weights->kv_bias, loader->Vector(layout.kv_bias));
  TALON_ASSIGN_OR_RETURN(weights->output, loader->Matrix(layout.output));
  TALON_ASSIGN_OR_RETURN(weights->output_bias, loader->Vector(layout.output_bias));
  TALON_ASSIGN_OR_RETURN(weights->post_norm, loader->Vector(layout.post_norm));
  TALON_ASSIGN_OR_RETURN(weights->gate_up, loader->Matrix(layout.gate_up));
  TALON_ASSIGN_OR_RETURN(weights->gate_up_bias, loader->Vector(layout.gate_up_bias));
  TALON_ASSIGN_OR_RETURN(weights->down, loader->Matrix(layout.down));
  TALON_ASSIGN_OR_RETURN(weights->down_bias, loader->Vector(layout.down_bias));
  return OkStatus();
}

// EAGLE-1 multiplies the embedding and the feature apart: its fc stands for both, side by side.
Status LoadFc(const EagleLayout& layout, const EagleConfig& config, WeightLoader* loader,
              EagleWeights* weights) {
  TALON_ASSIGN_OR_RETURN(weights->fc_bias, loader->Vector(layout.fc_bias));
  if (config.eagle3) {
    TALON_ASSIGN_OR_RETURN(weights->fc, loader->Matrix(layout.fc));
    return OkStatus();
  }
  const int hidden = config.hidden_size;
  TALON_ASSIGN_OR_RETURN(weights->fc_embed, loader->Columns(layout.fc[0], 0, hidden));
  TALON_ASSIGN_OR_RETURN(weights->fc,
                         loader->Columns(layout.fc[0], hidden, config.features_size()));
  return OkStatus();
}

Status LoadEnds(const EagleLayout& layout, const EagleConfig& config, WeightLoader* loader,
                EagleWeights* weights) {
  TALON_ASSIGN_OR_RETURN(weights->concat_norm, loader->Vector(layout.concat_norm));
  for (const TensorParts& parts : layout.fc_norms) {
    TALON_ASSIGN_OR_RETURN(Buffer norm, loader->Vector(parts));
    weights->fc_norms.push_back(std::move(norm));
  }
  TALON_RETURN_IF_ERROR(LoadFc(layout, config, loader, weights));
  TALON_ASSIGN_OR_RETURN(weights->norm, loader->Vector(layout.norm));
  TALON_ASSIGN_OR_RETURN(weights->head_norm, loader->Vector(layout.norm, config.logit_scale));
  if (!layout.embedding.empty()) {
    TALON_ASSIGN_OR_RETURN(weights->embedding, loader->Table(layout.embedding));
  }
  if (!layout.head.empty()) {
    TALON_ASSIGN_OR_RETURN(weights->head, loader->Matrix(layout.head));
  }
  return OkStatus();
}

Status LoadTensors(const EagleLayout& layout, const EagleConfig& config, WeightLoader* loader,
                   EagleWeights* weights) {
  TALON_RETURN_IF_ERROR(LoadLayer(layout, loader, weights));
  TALON_RETURN_IF_ERROR(LoadEnds(layout, config, loader, weights));
  weights->bytes = loader->matrix_bytes() + loader->other_bytes();
  return OkStatus();
}

}  // namespace

Result<EagleWeights> LoadEagleWeights(const std::string& dir, const EagleConfig& config,
                                      Backend* backend, WeightFormat format) {
  TALON_ASSIGN_OR_RETURN(SafetensorsReader file, OpenHeadFile(dir));
  TALON_ASSIGN_OR_RETURN(const EagleLayout layout, FindEagleTensors(config, file));
  EagleWeights weights;
  TALON_ASSIGN_OR_RETURN(
      weights.target_ids,
      ReadTargetIds(file, layout.d2t, {config.draft_vocab_size, config.vocab_size}));
  TALON_RETURN_IF_ERROR(
      CheckTargetMask(file, layout.t2d, {config.draft_vocab_size, config.vocab_size}));
  TALON_ASSIGN_OR_RETURN(const auto source,
                         NewFileWeights(std::move(file), layout.All(), config.quantised));
  WeightLoader loader(source.get(), backend, format);
  TALON_RETURN_IF_ERROR(LoadTensors(layout, config, &loader, &weights));
  return weights;
}

Result<EagleWeights> RandomEagleWeights(const EagleConfig& config, Backend* backend,
                                        WeightFormat format, uint64_t seed) {
  TALON_ASSIGN_OR_RETURN(const EagleLayout layout, CanonicalEagleTensors(config));
  EagleWeights weights;
  for (int64_t draft = 0; draft < config.draft_vocab_size; ++draft) {
    weights.target_ids.push_back(
        static_cast<int32_t>(draft * config.vocab_size / config.draft_vocab_size));
  }
  const auto source = NewRandomWeights(DType::kBF16, seed);
  WeightLoader loader(source.get(), backend, format);
  TALON_RETURN_IF_ERROR(LoadTensors(layout, config, &loader, &weights));
  return weights;
}

}  // namespace talon
