#include "model/files/weight_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "base/math.h"
#include "base/random.h"
#include "compute/mxfp4.h"
#include "model/files/quantised.h"

namespace talon {
namespace {

bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

class FileWeights : public WeightSource {
 public:
  FileWeights(SafetensorsReader reader, ExpertTensors experts, const QuantConfig& quantised)
      : reader_(std::make_shared<SafetensorsReader>(std::move(reader))),
        experts_(experts),
        quantised_(quantised) {}

  ExpertTensors expert_tensors() const override { return experts_; }

  Status Check(const TensorSpec& spec) const {
    if (IsQuantised(spec)) return Open(spec).status();
    if (!IsMxfp4(spec)) {
      TALON_ASSIGN_OR_RETURN(const TensorView* tensor, Find(spec.name, spec.shape));
      if (IsFloating(tensor->dtype)) return OkStatus();
      return InvalidArgument("{}: tensor {} has dtype {}, expected f32, f16 or bf16",
                             reader_->FileOf(spec.name), spec.name, DTypeName(tensor->dtype));
    }
    std::vector<int64_t> shape = {spec.shape[0], spec.rows(), spec.cols() / kMxfp4Group};
    TALON_RETURN_IF_ERROR(CheckBytes(spec.name + "_scales", shape));
    shape.push_back(kMxfp4GroupBytes);
    return CheckBytes(spec.name + "_blocks", shape);
  }

  Result<HostMatrix> Load(const TensorSpec& spec) override {
    TALON_RETURN_IF_ERROR(Check(spec));
    if (IsMxfp4(spec)) return LoadMxfp4(spec);
    if (IsQuantised(spec)) return LoadQuantised(spec);
    const TensorView tensor = PartOf(*reader_->Find(spec.name), spec.expert);
    loaded_.push_back(tensor);
    const void* data =
        spec.is_matrix() && spec.input_first() ? Transposed(tensor, spec) : Aligned(tensor);
    return HostMatrix{
        .data = data, .dtype = tensor.dtype, .rows = spec.rows(), .cols = spec.cols()};
  }

  void Release() override {
    for (const TensorView& tensor : loaded_) reader_->Release(tensor);
    loaded_.clear();
    copies_.clear();
  }

 private:
  static bool IsMxfp4(const TensorSpec& spec) {
    return spec.expert >= 0 && spec.is_matrix() && spec.form == ExpertTensors::kMxfp4;
  }

  bool IsQuantised(const TensorSpec& spec) const {
    return spec.expert < 0 && spec.is_matrix() && QuantisedMatrix::IsIn(*reader_, spec.name);
  }
  Result<QuantisedMatrix> Open(const TensorSpec& spec) const {
    return QuantisedMatrix::Open(*reader_, quantised_, spec.name, spec.rows(), spec.cols());
  }
  Result<HostMatrix> LoadQuantised(const TensorSpec& spec) {
    TALON_ASSIGN_OR_RETURN(const QuantisedMatrix matrix, Open(spec));
    const auto count = static_cast<size_t>(spec.rows() * spec.cols());
    auto* values = static_cast<float*>(NewCopy(count * sizeof(float)));
    if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>();
    matrix.Expand(pool_.get(), values);
    loaded_.push_back(matrix.codes());
    return HostMatrix{.data = values,
                      .dtype = DType::kF32,
                      .rows = spec.rows(),
                      .cols = spec.cols(),
                      .expanded = true,
                      .grid = matrix.Grid()};
  }

  Result<const TensorView*> Find(const std::string& name, std::span<const int64_t> shape) const {
    const TensorView* tensor = reader_->Find(name);
    const std::string& file = reader_->FileOf(name);
    if (tensor == nullptr) return InvalidArgument("{}: tensor {} is missing", file, name);
    if (!std::ranges::equal(tensor->shape, shape)) {
      return InvalidArgument("{}: tensor {} has shape {}, config.json says {}", file, name,
                             ShapeString(tensor->shape), ShapeString(shape));
    }
    return tensor;
  }

  Status CheckBytes(const std::string& name, std::span<const int64_t> shape) const {
    TALON_ASSIGN_OR_RETURN(const TensorView* tensor, Find(name, shape));
    if (tensor->dtype == DType::kU8) return OkStatus();
    return InvalidArgument("{}: tensor {} has dtype {}, expected u8", reader_->FileOf(name), name,
                           DTypeName(tensor->dtype));
  }

  // One expert's part of a stack; all of a tensor that is none.
  static TensorView PartOf(TensorView tensor, int expert) {
    if (expert < 0) return tensor;
    const size_t bytes = tensor.bytes.size() / tensor.shape[0];
    tensor.bytes = tensor.bytes.subspan(expert * bytes, bytes);
    return tensor;
  }

  // As it lies in the mapped file, which the matrix keeps open.
  HostMatrix LoadMxfp4(const TensorSpec& spec) const {
    const TensorView codes = PartOf(*reader_->Find(spec.name + "_blocks"), spec.expert);
    const TensorView scales = PartOf(*reader_->Find(spec.name + "_scales"), spec.expert);
    return {.data = codes.bytes.data(),
            .dtype = DType::kMxfp4,
            .rows = spec.rows(),
            .cols = spec.cols(),
            .scales = scales.bytes.data(),
            .owner = reader_};
  }

  void* NewCopy(size_t bytes) { return copies_.emplace_back(CeilDiv(bytes, 8)).data(); }

  // The mapped bytes, or a copy of them where the file does not align its tensors.
  const void* Aligned(const TensorView& tensor) {
    const uint8_t* bytes = tensor.bytes.data();
    if (reinterpret_cast<uintptr_t>(bytes) % DTypeSize(tensor.dtype) == 0) return bytes;
    return std::memcpy(NewCopy(tensor.bytes.size()), bytes, tensor.bytes.size());
  }

  const void* Transposed(const TensorView& tensor, const TensorSpec& spec) {
    const size_t size = DTypeSize(tensor.dtype);
    auto* copy = static_cast<uint8_t*>(NewCopy(tensor.bytes.size()));
    const uint8_t* from = tensor.bytes.data();
    for (int64_t in = 0; in < spec.cols(); ++in) {
      for (int64_t out = 0; out < spec.rows(); ++out, from += size) {
        std::memcpy(copy + (out * spec.cols() + in) * size, from, size);
      }
    }
    return copy;
  }

  std::shared_ptr<const SafetensorsReader> reader_;
  ExpertTensors experts_;
  QuantConfig quantised_;
  std::unique_ptr<ThreadPool> pool_;  // expands quantised files
  std::vector<TensorView> loaded_;
  std::vector<std::vector<uint64_t>> copies_;
};

// Stacks of Qwen are [experts, outputs, inputs] or transposed, as the shapes say.
Result<ExpertTensors> StackForm(const SafetensorsReader& reader, const std::string& experts,
                                const ModelConfig& config) {
  const std::string name = experts + "gate_up_proj";
  const std::vector<int64_t>& gate_up = reader.Find(name)->shape;
  const TensorView* down = reader.Find(experts + "down_proj");
  const int64_t hidden = config.hidden_size;
  const int64_t ffn = config.experts.intermediate_size;
  // At least one of the two tells: 2 * ffn and ffn cannot both be the hidden size.
  const bool by_down = hidden == 2 * ffn && down != nullptr && down->shape.size() == 3;
  const bool input_first = by_down ? down->shape[1] == ffn && ffn != hidden
                                   : gate_up.size() == 3 && gate_up[1] == hidden;
  return input_first ? ExpertTensors::kInputFirst : ExpertTensors::kStacked;
}

// How the files hold experts, judged by the first sparse layer.
Result<ExpertTensors> FindExpertTensors(const SafetensorsReader& reader,
                                        const ModelConfig& config) {
  int layer = 0;
  while (layer < config.num_layers && !config.IsSparse(layer)) ++layer;
  if (layer == config.num_layers) return ExpertTensors::kSeparate;
  const std::string experts = fmt::format("model.layers.{}.mlp.experts.", layer);
  const auto has = [&](const char* name) { return reader.Find(experts + name) != nullptr; };
  if (config.family == ModelFamily::kGptOss) {
    if (has("gate_up_proj") || !config.experts.mxfp4) {
      if (!has("gate_up_proj_blocks")) return ExpertTensors::kInputFirst;
      return InvalidArgument(
          "{}: {}gate_up_proj is packed (_blocks), but config.json has no "
          "quantization_config with mxfp4",
          reader.FileOf(""), experts);
    }
    return ExpertTensors::kMxfp4;
  }
  if (!has("gate_up_proj")) return ExpertTensors::kSeparate;
  return StackForm(reader, experts, config);
}

class RandomWeights : public WeightSource {
 public:
  RandomWeights(DType dtype, uint64_t seed, bool mxfp4)
      : dtype_(dtype), seed_(seed), mxfp4_(mxfp4) {
    for (size_t i = 0; i < kChoices; ++i) {
      // Box-Muller: a normal value from two uniform ones.
      const double u1 = 1.0 - UniformDraw({.seed = seed, .position = i, .draw = 0});
      const double u2 = UniformDraw({.seed = seed, .position = i, .draw = 1});
      const double normal = std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2);
      StoreElement(choices_.data(), dtype, static_cast<int64_t>(i),
                   static_cast<float>(kDeviation * normal));
    }
  }

  ExpertTensors expert_tensors() const override {
    return mxfp4_ ? ExpertTensors::kMxfp4 : ExpertTensors::kSeparate;
  }

  Result<HostMatrix> Load(const TensorSpec& spec) override {
    const int64_t count = spec.rows() * spec.cols();
    if (mxfp4_ && spec.expert >= 0 && spec.is_matrix()) return RandomMxfp4(spec);
    const size_t bytes = static_cast<size_t>(count) * DTypeSize(dtype_);
    std::vector<uint64_t>& storage = loaded_.emplace_back(CeilDiv(bytes, 8));
    if (spec.is_matrix()) {
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

  // Any bytes are codes. Their deviation is 2.9, so exponents of 2^-7 give about that of the rest.
  HostMatrix RandomMxfp4(const TensorSpec& spec) const {
    constexpr uint8_t kExponent = 127 - 7;
    const size_t codes = static_cast<size_t>(spec.rows() * spec.cols()) / 2;
    const size_t scales = codes / kMxfp4GroupBytes;
    auto bytes = std::make_shared<std::vector<uint8_t>>(codes + scales, kExponent);
    uint64_t state = NameHash(spec.name) ^ seed_ ^ static_cast<uint64_t>(spec.expert) << 32;
    for (size_t i = 0; i + 4 <= codes; i += 4) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(bytes->data() + i, reinterpret_cast<const uint8_t*>(&state) + 4, 4);
    }
    return {.data = bytes->data(),
            .dtype = DType::kMxfp4,
            .rows = spec.rows(),
            .cols = spec.cols(),
            .scales = bytes->data() + codes,
            .owner = bytes};
  }

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
  bool mxfp4_;
  std::array<uint32_t, kChoices> choices_ = {};  // elements of dtype_
  std::vector<std::vector<uint64_t>> loaded_;
};

Result<std::unique_ptr<WeightSource>> NewSource(SafetensorsReader reader,
                                                std::span<const TensorSpec> tensors,
                                                ExpertTensors experts,
                                                const QuantConfig& quantised) {
  auto source = std::make_unique<FileWeights>(std::move(reader), experts, quantised);
  for (const TensorSpec& spec : tensors) TALON_RETURN_IF_ERROR(source->Check(spec));
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenWeightFiles(const std::string& dir,
                                                      const ModelConfig& config) {
  TALON_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::OpenDirectory(dir));
  TALON_ASSIGN_OR_RETURN(const ExpertTensors experts, FindExpertTensors(reader, config));
  return NewSource(std::move(reader), LayoutOf(config, experts).All(), experts, config.quantised);
}

Result<std::unique_ptr<WeightSource>> NewFileWeights(SafetensorsReader reader,
                                                     std::span<const TensorSpec> tensors,
                                                     const QuantConfig& quantised) {
  return NewSource(std::move(reader), tensors, ExpertTensors::kSeparate, quantised);
}

std::unique_ptr<WeightSource> NewRandomWeights(DType dtype, uint64_t seed, bool mxfp4) {
  return std::make_unique<RandomWeights>(dtype, seed, mxfp4);
}

}  // namespace talon
