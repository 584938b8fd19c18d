#include "model/heads/eagle3_weights.h"

#include <cstring>
#include <utility>

#include "base/file.h"
#include "model/files/safetensors.h"
#include "model/files/weight_source.h"
#include "model/heads/eagle3_layout.h"

namespace talon {
namespace {

Status CheckVector(const SafetensorsReader& file, const TensorView& tensor, int64_t size) {
  if (tensor.shape == std::vector<int64_t>{size}) return OkStatus();
  return InvalidArgument("{}: tensor {} has shape {}, expected [{}]", file.FileOf(tensor.name),
                         tensor.name, ShapeString(tensor.shape), size);
}

Result<std::vector<int64_t>> ReadOffsets(const SafetensorsReader& file, const TensorView& tensor) {
  const bool wide = tensor.dtype == DType::kI64;
  if (!wide && tensor.dtype != DType::kI32) {
    return InvalidArgument("{}: tensor {} has dtype {}, expected i64", file.FileOf(tensor.name),
                           tensor.name, DTypeName(tensor.dtype));
  }
  std::vector<int64_t> offsets(static_cast<size_t>(tensor.NumElements()));
  for (size_t i = 0; i < offsets.size(); ++i) {
    int32_t narrow = 0;
    if (wide) {
      std::memcpy(&offsets[i], tensor.bytes.data() + i * sizeof(int64_t), sizeof(int64_t));
    } else {
      std::memcpy(&narrow, tensor.bytes.data() + i * sizeof(int32_t), sizeof(int32_t));
      offsets[i] = narrow;
    }
  }
  return offsets;
}

// d2t holds offsets: target id = draft id + d2t[draft id].
Result<std::vector<int32_t>> ReadTargetIds(const SafetensorsReader& file, const std::string& name,
                                           const Eagle3Config& config) {
  const auto size = static_cast<size_t>(config.draft_vocab_size);
  std::vector<int64_t> offsets(size, 0);
  if (!name.empty()) {
    TALON_RETURN_IF_ERROR(CheckVector(file, *file.Find(name), config.draft_vocab_size));
    TALON_ASSIGN_OR_RETURN(offsets, ReadOffsets(file, *file.Find(name)));
  }
  std::vector<int32_t> ids;
  std::vector<int32_t> drafts(static_cast<size_t>(config.vocab_size), -1);  // by target id
  for (int64_t draft = 0; draft < static_cast<int64_t>(size); ++draft) {
    const int64_t offset = offsets[static_cast<size_t>(draft)];
    if (offset < -draft || offset >= config.vocab_size - draft) {
      return InvalidArgument("{}: {} moves draft id {} by {}, out of the vocabulary of {}",
                             file.FileOf(name), name, draft, offset, config.vocab_size);
    }
    int32_t& taken = drafts[static_cast<size_t>(draft + offset)];
    if (taken >= 0) {
      return InvalidArgument("{}: {} maps draft ids {} and {} both to {}", file.FileOf(name), name,
                             taken, draft, draft + offset);
    }
    taken = static_cast<int32_t>(draft);
    ids.push_back(static_cast<int32_t>(draft + offset));
  }
  return ids;
}

// t2d marks the target ids that have a draft id; only their number is of use.
Status CheckTargetMask(const SafetensorsReader& file, const std::string& name,
                       const Eagle3Config& config) {
  if (name.empty()) return OkStatus();
  const TensorView& tensor = *file.Find(name);
  TALON_RETURN_IF_ERROR(CheckVector(file, tensor, config.vocab_size));
  if (DTypeSize(tensor.dtype) != 1) {
    return InvalidArgument("{}: tensor {} has dtype {}, expected bool", file.FileOf(name), name,
                           DTypeName(tensor.dtype));
  }
  int marked = 0;
  for (const uint8_t value : tensor.bytes) marked += value != 0;
  if (marked == config.draft_vocab_size) return OkStatus();
  return InvalidArgument("{}: {} marks {} tokens, draft_vocab_size is {}", file.FileOf(name), name,
                         marked, config.draft_vocab_size);
}

Status LoadLayer(const Eagle3Layout& layout, WeightLoader* loader, Eagle3Weights* weights) {
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

Status LoadEnds(const Eagle3Layout& layout, float logit_scale, WeightLoader* loader,
                Eagle3Weights* weights) {
  TALON_ASSIGN_OR_RETURN(weights->concat_norm, loader->Vector(layout.concat_norm));
  for (const TensorParts& parts : layout.fc_norms) {
    TALON_ASSIGN_OR_RETURN(Buffer norm, loader->Vector(parts));
    weights->fc_norms.push_back(std::move(norm));
  }
  TALON_ASSIGN_OR_RETURN(weights->fc, loader->Matrix(layout.fc));
  TALON_ASSIGN_OR_RETURN(weights->fc_bias, loader->Vector(layout.fc_bias));
  TALON_ASSIGN_OR_RETURN(weights->norm, loader->Vector(layout.norm));
  TALON_ASSIGN_OR_RETURN(weights->head_norm, loader->Vector(layout.norm, logit_scale));
  if (!layout.embedding.empty()) {
    TALON_ASSIGN_OR_RETURN(weights->embedding, loader->Table(layout.embedding));
  }
  if (!layout.head.empty()) {
    TALON_ASSIGN_OR_RETURN(weights->head, loader->Matrix(layout.head));
  }
  return OkStatus();
}

Status LoadTensors(const Eagle3Layout& layout, float logit_scale, WeightLoader* loader,
                   Eagle3Weights* weights) {
  TALON_RETURN_IF_ERROR(LoadLayer(layout, loader, weights));
  TALON_RETURN_IF_ERROR(LoadEnds(layout, logit_scale, loader, weights));
  weights->bytes = loader->matrix_bytes() + loader->other_bytes();
  return OkStatus();
}

Result<SafetensorsReader> OpenCheckpoint(const std::string& dir) {
  const bool safetensors =
      FileExists(dir + "/model.safetensors") || FileExists(dir + "/model.safetensors.index.json");
  if (!safetensors && FileExists(dir + "/pytorch_model.bin")) {
    return InvalidArgument(
        "{}: has pytorch_model.bin but no model.safetensors; only safetensors are read", dir);
  }
  return SafetensorsReader::OpenDirectory(dir);
}

}  // namespace

Result<Eagle3Weights> LoadEagle3Weights(const std::string& dir, const Eagle3Config& config,
                                        Backend* backend, WeightFormat format) {
  TALON_ASSIGN_OR_RETURN(SafetensorsReader file, OpenCheckpoint(dir));
  TALON_ASSIGN_OR_RETURN(const Eagle3Layout layout, FindEagle3Tensors(config, file));
  Eagle3Weights weights;
  TALON_ASSIGN_OR_RETURN(weights.target_ids, ReadTargetIds(file, layout.d2t, config));
  TALON_RETURN_IF_ERROR(CheckTargetMask(file, layout.t2d, config));
  TALON_ASSIGN_OR_RETURN(const auto source, NewFileWeights(std::move(file), layout.All()));
  WeightLoader loader(source.get(), backend, format);
  TALON_RETURN_IF_ERROR(LoadTensors(layout, config.logit_scale, &loader, &weights));
  return weights;
}

Result<Eagle3Weights> RandomEagle3Weights(const Eagle3Config& config, Backend* backend,
                                          WeightFormat format, uint64_t seed) {
  TALON_ASSIGN_OR_RETURN(const Eagle3Layout layout, CanonicalEagle3Tensors(config));
  Eagle3Weights weights;
  for (int64_t draft = 0; draft < config.draft_vocab_size; ++draft) {
    weights.target_ids.push_back(
        static_cast<int32_t>(draft * config.vocab_size / config.draft_vocab_size));
  }
  const auto source = NewRandomWeights(DType::kBF16, seed);
  WeightLoader loader(source.get(), backend, format);
  TALON_RETURN_IF_ERROR(LoadTensors(layout, config.logit_scale, &loader, &weights));
  return weights;
}

}  // namespace talon
