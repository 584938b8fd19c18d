#include "model/heads/head_file.h"

#include <cstring>

#include "base/file.h"

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

}  // namespace

Result<SafetensorsReader> OpenHeadFile(const std::string& dir) {
  const bool safetensors =
      FileExists(dir + "/model.safetensors") || FileExists(dir + "/model.safetensors.index.json");
  if (!safetensors && FileExists(dir + "/pytorch_model.bin")) {
    return InvalidArgument(
        "{}: has pytorch_model.bin but no model.safetensors; only safetensors are read", dir);
  }
  return SafetensorsReader::OpenDirectory(dir);
}

// d2t holds offsets: target id = draft id + d2t[draft id].
Result<std::vector<int32_t>> ReadTargetIds(const SafetensorsReader& file, const std::string& name,
                                           const HeadVocabulary& vocabulary) {
  const auto size = static_cast<size_t>(vocabulary.draft);
  std::vector<int64_t> offsets(size, 0);
  if (!name.empty()) {
    TALON_RETURN_IF_ERROR(CheckVector(file, *file.Find(name), vocabulary.draft));
    TALON_ASSIGN_OR_RETURN(offsets, ReadOffsets(file, *file.Find(name)));
  }
  std::vector<int32_t> ids;
  std::vector<int32_t> drafts(static_cast<size_t>(vocabulary.target), -1);  // by target id
  for (int64_t draft = 0; draft < static_cast<int64_t>(size); ++draft) {
    const int64_t offset = offsets[static_cast<size_t>(draft)];
    if (offset < -draft || offset >= vocabulary.target - draft) {
      return InvalidArgument("{}: {} moves draft id {} by {}, out of the vocabulary of {}",
                             file.FileOf(name), name, draft, offset, vocabulary.target);
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
                       const HeadVocabulary& vocabulary) {
  if (name.empty()) return OkStatus();
  const TensorView& tensor = *file.Find(name);
  TALON_RETURN_IF_ERROR(CheckVector(file, tensor, vocabulary.target));
  if (DTypeSize(tensor.dtype) != 1) {
    return InvalidArgument("{}: tensor {} has dtype {}, expected bool", file.FileOf(name), name,
                           DTypeName(tensor.dtype));
  }
  int marked = 0;
  for (const uint8_t value : tensor.bytes) marked += value != 0;
  if (marked == vocabulary.draft) return OkStatus();
  return InvalidArgument("{}: {} marks {} tokens, draft_vocab_size is {}", file.FileOf(name), name,
                         marked, vocabulary.draft);
}

}  // namespace talon
