#include "model/files/quantised.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/math.h"
#include "compute/fp8.h"

namespace talon {
namespace {

// The output that each 4 bits of AWQ's words hold, as the place of each output.
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

const std::array<float, 256>& E4M3Table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; ++i) values[i] = FromE4M3(static_cast<uint8_t>(i));
    return values;
  }();
  return table;
}

bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// "x.weight" -> "x."
std::string BaseOf(const std::string& name) { return name.substr(0, name.size() - 6); }

}  // namespace

std::string QuantisedMatrix::MatrixOf(const std::string& tensor) {
  constexpr std::string_view kParts[] = {
      "weight",        "weight_scale", "weight_scale_inv", "input_scale",
      "weight_packed", "weight_shape", "weight_g_idx",     "weight_zero_point",
      "qweight",       "qzeros",       "scales",           "g_idx"};
  const size_t dot = tensor.rfind('.');
  if (dot == std::string::npos) return "";
  const bool known = std::ranges::count(kParts, std::string_view(tensor).substr(dot + 1)) != 0;
  return known ? tensor.substr(0, dot) + ".weight" : "";
}

bool QuantisedMatrix::IsIn(const SafetensorsReader& reader, const std::string& name) {
  if (!name.ends_with(".weight")) return false;
  const TensorView* plain = reader.Find(name);
  if (plain != nullptr) return plain->dtype == DType::kF8E4M3 || plain->dtype == DType::kI8;
  const std::string base = BaseOf(name);
  return reader.Find(base + "qweight") != nullptr || reader.Find(base + "weight_packed") != nullptr;
}

// Finds and checks the tensors of one matrix.
class QuantisedMatrix::Opener {
 public:
  Opener(const SafetensorsReader& reader, const QuantConfig& config, const std::string& name)
      : reader_(reader), config_(config), name_(name), base_(BaseOf(name)) {}

  Result<QuantisedMatrix> Open(int64_t rows, int64_t cols) {
    m_.rows_ = rows;
    m_.cols_ = cols;
    m_.bits_ = config_.bits;
    if (reader_.Find(name_) != nullptr) {
      TALON_RETURN_IF_ERROR(OpenBytes());
    } else if (reader_.Find(base_ + "weight_packed") != nullptr) {
      TALON_RETURN_IF_ERROR(OpenPacked());
    } else if (config_.method == QuantMethod::kAwq) {
      TALON_RETURN_IF_ERROR(OpenAwq());
    } else if (config_.method == QuantMethod::kGptq) {
      TALON_RETURN_IF_ERROR(OpenGptq());
    } else {
      return InvalidArgument("{}: tensor {}qweight without a quantization_config of gptq or awq",
                             reader_.FileOf(base_ + "qweight"), base_);
    }
    return std::move(m_);
  }

 private:
  int per_word() const { return 32 / m_.bits_; }

  Result<const TensorView*> Find(const std::string& suffix, DType dtype,
                                 std::vector<int64_t> shape) const {
    const std::string name = base_ + suffix;
    const TensorView* tensor = reader_.Find(name);
    const std::string& file = reader_.FileOf(name);
    if (tensor == nullptr) return InvalidArgument("{}: tensor {} is missing", file, name);
    if (tensor->dtype != dtype || tensor->shape != shape) {
      return InvalidArgument("{}: tensor {} is {} {}, expected {} {}", file, name,
                             DTypeName(tensor->dtype), ShapeString(tensor->shape), DTypeName(dtype),
                             ShapeString(shape));
    }
    return tensor;
  }

  // A tensor of scales in any float type, whatever its shape.
  Result<const TensorView*> FindScales(const char* suffix) const {
    const std::string name = base_ + suffix;
    const TensorView* tensor = reader_.Find(name);
    const std::string& file = reader_.FileOf(name);
    if (tensor == nullptr) return InvalidArgument("{}: tensor {} is missing", file, name);
    if (!IsFloating(tensor->dtype)) {
      return InvalidArgument("{}: tensor {} has dtype {}, expected f32, f16 or bf16", file, name,
                             DTypeName(tensor->dtype));
    }
    return tensor;
  }

  Status BadShape(const TensorView& tensor) const {
    return InvalidArgument("{}: tensor {} has shape {}, which does not fit a matrix [{}, {}]",
                           reader_.FileOf(tensor.name), tensor.name, ShapeString(tensor.shape),
                           m_.rows_, m_.cols_);
  }

  static std::vector<float> Floats(const TensorView& tensor) {
    std::vector<float> values(tensor.NumElements());
    std::vector<uint64_t> aligned(tensor.bytes.size() / 8 + 1);
    std::memcpy(aligned.data(), tensor.bytes.data(), tensor.bytes.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = LoadElement(aligned.data(), tensor.dtype, static_cast<int64_t>(i));
    }
    return values;
  }

  static uint32_t WordOf(const TensorView& tensor, int64_t index) {
    uint32_t word;
    std::memcpy(&word, tensor.bytes.data() + index * 4, 4);
    return word;
  }

  // Equal runs of inputs.
  void GroupInputs(int64_t groups) {
    m_.groups_ = groups;
    const int64_t size = CeilDiv(m_.cols_, groups);
    m_.group_of_.resize(m_.cols_);
    for (int64_t i = 0; i < m_.cols_; ++i) m_.group_of_[i] = static_cast<int32_t>(i / size);
  }

  // The order in which inputs were quantised, where the file has one.
  Status ReadGroupIndex(const std::string& suffix) {
    if (reader_.Find(base_ + suffix) == nullptr) return OkStatus();
    TALON_ASSIGN_OR_RETURN(const TensorView* index, Find(suffix, DType::kI32, {m_.cols_}));
    for (int64_t i = 0; i < m_.cols_; ++i) {
      const auto group = static_cast<int32_t>(WordOf(*index, i));
      if (group < 0 || group >= m_.groups_) {
        return InvalidArgument("{}: tensor {} names group {} of {}", reader_.FileOf(index->name),
                               index->name, group, m_.groups_);
      }
      m_.group_of_[i] = group;
    }
    return OkStatus();
  }

  // weight_scale or weight_scale_inv: one, one for each output, for groups of inputs or for blocks.
  Status ReadRowScales(const TensorView& tensor) {
    const std::vector<int64_t>& shape = tensor.shape;
    int64_t row_blocks = 1, groups = 1;
    if (tensor.NumElements() != 1) {
      if (shape.size() != 1 && shape.size() != 2) return BadShape(tensor);
      row_blocks = shape[0];
      groups = shape.size() == 2 ? shape[1] : 1;
    }
    if (row_blocks < 1 || groups < 1 || row_blocks > m_.rows_ || groups > m_.cols_) {
      return BadShape(tensor);
    }
    m_.row_block_ = CeilDiv(m_.rows_, row_blocks);
    // Blocks are equal but for what is left at the ends.
    const bool blocks = row_blocks < m_.rows_ && row_blocks * groups > 1;
    const int64_t size = blocks ? config_.block_cols : CeilDiv(m_.cols_, groups);
    if (blocks) m_.row_block_ = config_.block_rows;
    if (CeilDiv(m_.rows_, m_.row_block_) != row_blocks || CeilDiv(m_.cols_, size) != groups) {
      return BadShape(tensor);
    }
    GroupInputs(groups);
    for (int64_t i = 0; i < m_.cols_; ++i) m_.group_of_[i] = static_cast<int32_t>(i / size);
    m_.scales_ = Floats(tensor);
    return OkStatus();
  }

  Status OpenBytes() {
    const DType dtype = reader_.Find(name_)->dtype;
    m_.form_ = dtype == DType::kF8E4M3 ? Form::kFloat8 : Form::kInt8;
    TALON_ASSIGN_OR_RETURN(m_.codes_, Find("weight", dtype, {m_.rows_, m_.cols_}));
    const bool inverse = reader_.Find(base_ + "weight_scale_inv") != nullptr;
    TALON_ASSIGN_OR_RETURN(const TensorView* scales,
                           FindScales(inverse ? "weight_scale_inv" : "weight_scale"));
    if (reader_.Find(base_ + "weight_zero_point") != nullptr) {
      return InvalidArgument(
          "{}: tensor {}weight_zero_point: zero points of 8-bit weights are not "
          "supported",
          reader_.FileOf(name_), base_);
    }
    return ReadRowScales(*scales);
  }

  Status OpenPacked() {
    m_.form_ = Form::kPackedInputs;
    TALON_ASSIGN_OR_RETURN(m_.codes_, Find("weight_packed", DType::kI32,
                                           {m_.rows_, CeilDiv(m_.cols_, int64_t{per_word()})}));
    TALON_ASSIGN_OR_RETURN(const TensorView* scales, FindScales("weight_scale"));
    const bool by_output = scales->shape.size() == 2 && scales->shape[0] == m_.rows_;
    if (!by_output) return BadShape(*scales);
    TALON_RETURN_IF_ERROR(ReadRowScales(*scales));
    TALON_RETURN_IF_ERROR(ReadGroupIndex("weight_g_idx"));
    m_.zero_ = static_cast<float>(1 << (m_.bits_ - 1));
    if (reader_.Find(base_ + "weight_zero_point") == nullptr) return OkStatus();
    // Packed along the outputs.
    TALON_ASSIGN_OR_RETURN(const TensorView* zeros,
                           Find("weight_zero_point", DType::kI32,
                                {CeilDiv(m_.rows_, int64_t{per_word()}), m_.groups_}));
    m_.zeros_.resize(m_.rows_ * m_.groups_);
    for (int64_t row = 0; row < m_.rows_; ++row) {
      for (int64_t g = 0; g < m_.groups_; ++g) {
        const uint32_t word = WordOf(*zeros, row / per_word() * m_.groups_ + g);
        m_.zeros_[row * m_.groups_ + g] = Field(word, static_cast<int>(row % per_word()));
      }
    }
    return OkStatus();
  }

  float Field(uint32_t word, int place) const {
    return static_cast<float>(word >> (m_.bits_ * place) & ((1u << m_.bits_) - 1));
  }

  // Scales and zeros of GPTQ and AWQ are [groups, outputs], zeros packed along the outputs.
  Status ReadGroups(bool awq) {
    const int64_t per = per_word();
    if (m_.rows_ % per != 0) return BadShape(*m_.codes_);
    TALON_ASSIGN_OR_RETURN(const TensorView* scales, FindScales("scales"));
    if (scales->shape.size() != 2 || scales->shape[1] != m_.rows_ || scales->shape[0] < 1 ||
        scales->shape[0] > m_.cols_) {
      return BadShape(*scales);
    }
    GroupInputs(scales->shape[0]);
    const std::vector<float> values = Floats(*scales);
    m_.scales_.resize(values.size());
    for (int64_t g = 0; g < m_.groups_; ++g) {
      for (int64_t row = 0; row < m_.rows_; ++row) {
        m_.scales_[row * m_.groups_ + g] = values[g * m_.rows_ + row];
      }
    }
    m_.zero_ = static_cast<float>(1 << (m_.bits_ - 1));
    if (reader_.Find(base_ + "qzeros") == nullptr) return OkStatus();
    TALON_ASSIGN_OR_RETURN(const TensorView* zeros,
                           Find("qzeros", DType::kI32, {m_.groups_, m_.rows_ / per}));
    const float one = !awq && config_.zeros_minus_one ? 1 : 0;
    m_.zeros_.resize(m_.scales_.size());
    for (int64_t g = 0; g < m_.groups_; ++g) {
      for (int64_t row = 0; row < m_.rows_; ++row) {
        const uint32_t word = WordOf(*zeros, g * (m_.rows_ / per) + row / per);
        const int place = static_cast<int>(row % per);
        m_.zeros_[row * m_.groups_ + g] = Field(word, awq ? kAwqPlace[place] : place) + one;
      }
    }
    return OkStatus();
  }

  Status OpenGptq() {
    m_.form_ = Form::kGptq;
    TALON_ASSIGN_OR_RETURN(m_.codes_, Find("qweight", DType::kI32,
                                           {CeilDiv(m_.cols_, int64_t{per_word()}), m_.rows_}));
    TALON_RETURN_IF_ERROR(ReadGroups(/*awq=*/false));
    return ReadGroupIndex("g_idx");
  }

  Status OpenAwq() {
    m_.form_ = Form::kAwq;
    TALON_ASSIGN_OR_RETURN(m_.codes_,
                           Find("qweight", DType::kI32, {m_.cols_, m_.rows_ / per_word()}));
    return ReadGroups(/*awq=*/true);
  }

  const SafetensorsReader& reader_;
  const QuantConfig& config_;
  const std::string& name_;
  std::string base_;
  QuantisedMatrix m_;
};

Result<QuantisedMatrix> QuantisedMatrix::Open(const SafetensorsReader& reader,
                                              const QuantConfig& config, const std::string& name,
                                              int64_t rows, int64_t cols) {
  return Opener(reader, config, name).Open(rows, cols);
}

uint32_t QuantisedMatrix::Word(int64_t index) const {
  uint32_t word;
  std::memcpy(&word, codes_->bytes.data() + index * 4, 4);
  return word;
}

template <QuantisedMatrix::Form kForm>
float QuantisedMatrix::Code(int64_t row, int64_t col) const {
  const int per = 32 / bits_;
  const uint32_t mask = (1u << bits_) - 1;
  if constexpr (kForm == Form::kFloat8) return E4M3Table()[codes_->bytes[row * cols_ + col]];
  if constexpr (kForm == Form::kInt8) {
    return static_cast<float>(static_cast<int8_t>(codes_->bytes[row * cols_ + col]));
  }
  if constexpr (kForm == Form::kPackedInputs) {
    const uint32_t word = Word(row * CeilDiv(cols_, int64_t{per}) + col / per);
    return static_cast<float>(word >> (bits_ * (col % per)) & mask);
  }
  if constexpr (kForm == Form::kGptq) {
    return static_cast<float>(Word(col / per * rows_ + row) >> (bits_ * (col % per)) & mask);
  }
  return static_cast<float>(Word(col * (rows_ / per) + row / per) >> (4 * kAwqPlace[row % per]) &
                            mask);
}

template <QuantisedMatrix::Form kForm>
void QuantisedMatrix::ExpandRow(int64_t row, float* out) const {
  const int64_t first = row / row_block_ * groups_;
  for (int64_t col = 0; col < cols_; ++col) {
    const int64_t at = first + group_of_[col];
    const float zero = zeros_.empty() ? zero_ : zeros_[at];
    out[col] = scales_[at] * (Code<kForm>(row, col) - zero);
  }
}

void QuantisedMatrix::Expand(ThreadPool* pool, float* out) const {
  pool->Run(rows_, [&](int64_t row, int) {
    float* to = out + row * cols_;
    switch (form_) {
      case Form::kFloat8:
        return ExpandRow<Form::kFloat8>(row, to);
      case Form::kInt8:
        return ExpandRow<Form::kInt8>(row, to);
      case Form::kPackedInputs:
        return ExpandRow<Form::kPackedInputs>(row, to);
      case Form::kGptq:
        return ExpandRow<Form::kGptq>(row, to);
      case Form::kAwq:
        return ExpandRow<Form::kAwq>(row, to);
    }
  });
}

std::shared_ptr<const QuantGrid> QuantisedMatrix::Grid() const {
  const bool bytes = form_ == Form::kFloat8 || form_ == Form::kInt8;
  if (!bytes && bits_ != 4) return nullptr;
  const auto leads = std::ranges::find_if(group_of_, [](int32_t group) { return group != 0; });
  const int64_t size = leads - group_of_.begin();
  if (size == 0) return nullptr;  // quantised in another order, as below
  for (int64_t i = 0; i < cols_; ++i) {
    if (group_of_[i] != i / size) return nullptr;
  }
  auto grid = std::make_shared<QuantGrid>();
  grid->dtype = form_ == Form::kFloat8 ? DType::kF8E4M3 : bytes ? DType::kI8 : DType::kI4;
  grid->group = size;
  for (int64_t row = 0; row < rows_; ++row) {
    const int64_t first = row / row_block_ * groups_;
    grid->scales.insert(grid->scales.end(), scales_.begin() + first,
                        scales_.begin() + first + groups_);
  }
  grid->zeros = zeros_;
  return grid;
}

}  // namespace talon
