#include "model/files/weight_source.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "base/random.h"

namespace talon {
namespace {

bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

class FileWeights : public WeightSource {
 public:
  explicit FileWeights(SafetensorsReader reader) : reader_(std::move(reader)) {}

  Status Check(const TensorSpec& spec) const {
    const TensorView* tensor = reader_.Find(spec.name);
    const std::string& file = reader_.FileOf(spec.name);
    if (tensor == nullptr) return InvalidArgument("{}: tensor {} is missing", file, spec.name);
    if (tensor->shape != spec.shape) {
      return InvalidArgument("{}: tensor {} has shape {}, config.json says {}", file, spec.name,
                             ShapeString(tensor->shape), ShapeString(spec.shape));
    }
    if (!IsFloating(tensor->dtype)) {
      return InvalidArgument("{}: tensor {} has dtype {}, expected f32, f16 or bf16", file,
                             spec.name, DTypeName(tensor->dtype));
    }
    return OkStatus();
  }

  Result<HostMatrix> Load(const TensorSpec& spec) override {
    TALON_RETURN_IF_ERROR(Check(spec));
    const TensorView& tensor = *reader_.Find(spec.name);
    loaded_.push_back(&tensor);
    return HostMatrix{Aligned(tensor), tensor.dtype, spec.rows(), spec.cols()};
  }

  void Release() override {
    for (const TensorView* tensor : loaded_) reader_.Release(*tensor);
    loaded_.clear();
    copies_.clear();
  }

 private:
  // The mapped bytes, or a copy of them where the file does not align its tensors.
  const void* Aligned(const TensorView& tensor) {
    const uint8_t* bytes = tensor.bytes.data();
    if (reinterpret_cast<uintptr_t>(bytes) % DTypeSize(tensor.dtype) == 0) return bytes;
    copies_.emplace_back((tensor.bytes.size() + 7) / 8);
    std::memcpy(copies_.back().data(), bytes, tensor.bytes.size());
    return copies_.back().data();
  }

  SafetensorsReader reader_;
  std::vector<const TensorView*> loaded_;
  std::vector<std::vector<uint64_t>> copies_;
};

class RandomWeights : public WeightSource {
 public:
  RandomWeights(DType dtype, uint64_t seed) : dtype_(dtype), seed_(seed) {
    for (size_t i = 0; i < kChoices; ++i) {
      // Box-Muller: a normal value from two uniform ones.
      const double u1 = 1.0 - UniformDraw({.seed = seed, .position = i, .draw = 0});
      const double u2 = UniformDraw({.seed = seed, .position = i, .draw = 1});
      const double normal = std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2);
      StoreElement(choices_.data(), dtype, static_cast<int64_t>(i),
                   static_cast<float>(kDeviation * normal));
    }
  }

  Result<HostMatrix> Load(const TensorSpec& spec) override {
    const int64_t count = spec.rows() * spec.cols();
    const size_t bytes = static_cast<size_t>(count) * DTypeSize(dtype_);
    std::vector<uint64_t>& storage = loaded_.emplace_back((bytes + 7) / 8);
    if (spec.shape.size() == 2) {
      FillRandom(storage.data(), count, NameHash(spec.name) ^ seed_);
    } else {
      const float value = spec.name.ends_with("norm.weight") ? 1.0f : 0.0f;
      for (int64_t i = 0; i < count; ++i) StoreElement(storage.data(), dtype_, i, value);
    }
    return HostMatrix{storage.data(), dtype_, spec.rows(), spec.cols()};
  }

  void Release() override { loaded_.clear(); }

 private:
  static constexpr size_t kChoices = 4096;
  static constexpr int kChoiceBits = 12;
  static constexpr double kDeviation = 0.02;

  // FNV-1a.
  static uint64_t NameHash(const std::string& name) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    return hash;
  }

  void FillRandom(void* out, int64_t count, uint64_t state) const {
    if (DTypeSize(dtype_) == 4) {
      Pick(reinterpret_cast<const uint32_t*>(choices_.data()), static_cast<uint32_t*>(out), count,
           state);
    } else {
      Pick(reinterpret_cast<const uint16_t*>(choices_.data()), static_cast<uint16_t*>(out), count,
           state);
    }
  }

  // A billion elements in a second or two: a 64-bit linear congruential generator whose top bits
  // choose among prepared values.
  template <typename T>
  static void Pick(const T* choices, T* out, int64_t count, uint64_t state) {
    for (int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      out[i] = choices[state >> (64 - kChoiceBits)];
    }
  }

  DType dtype_;
  uint64_t seed_;
  std::array<uint32_t, kChoices> choices_ = {};  // elements of dtype_
  std::vector<std::vector<uint64_t>> loaded_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenWeightFiles(const std::string& dir,
                                                      const TensorLayout& layout) {
  TALON_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::OpenDirectory(dir));
  return NewFileWeights(std::move(reader), layout.All());
}

Result<std::unique_ptr<WeightSource>> NewFileWeights(SafetensorsReader reader,
                                                     std::span<const TensorSpec> tensors) {
  auto source = std::make_unique<FileWeights>(std::move(reader));
  for (const TensorSpec& spec : tensors) TALON_RETURN_IF_ERROR(source->Check(spec));
  return std::unique_ptr<WeightSource>(std::move(source));
}

std::unique_ptr<WeightSource> NewRandomWeights(DType dtype, uint64_t seed) {
  return std::make_unique<RandomWeights>(dtype, seed);
}

}  // namespace talon
