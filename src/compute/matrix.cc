#include "compute/matrix.h"

#include <array>
#include <utility>

namespace talon {
namespace {

constexpr std::array<std::pair<WeightFormat, const char*>, 7> kFormatNames = {{
    {WeightFormat::kAsStored, "auto"},
    {WeightFormat::kF32, "f32"},
    {WeightFormat::kF16, "f16"},
    {WeightFormat::kBF16, "bf16"},
    {WeightFormat::kFp8, "fp8"},
    {WeightFormat::kInt8, "int8"},
    {WeightFormat::kInt4, "int4"},
}};

}  // namespace

const char* WeightFormatName(WeightFormat format) {
  for (const auto& [value, name] : kFormatNames) {
    if (value == format) return name;
  }
  return "unknown";
}

bool ParseWeightFormat(std::string_view name, WeightFormat* format) {
  for (const auto& [value, known] : kFormatNames) {
    if (name == known) {
      *format = value;
      return true;
    }
  }
  return false;
}

bool ParseActivationFormat(std::string_view name, ActivationFormat* format) {
  if (name != "auto" && name != "fp8") return false;
  *format = name == "fp8" ? ActivationFormat::kFp8 : ActivationFormat::kAuto;
  return true;
}

std::string WeightFormatNames() {
  std::string names = kFormatNames[0].second;
  for (size_t i = 1; i < kFormatNames.size(); ++i) {
    names += i + 1 < kFormatNames.size() ? ", " : " or ";
    names += kFormatNames[i].second;
  }
  return names;
}

}  // namespace talon
