#include "model/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/valid_values.h"

namespace talon {
namespace {

constexpr std::array<std::pair<RopeKind, const char*>, 5> kNames = {{
    {RopeKind::kDefault, "default"},
    {RopeKind::kDynamic, "dynamic"},
    {RopeKind::kLinear, "linear"},
    {RopeKind::kLlama3, "llama3"},
    {RopeKind::kYarn, "yarn"},
}};

// theta ^ (2i / dim)
std::vector<float> Periods(double theta, int dim) {
  std::vector<float> periods(static_cast<size_t>(dim) / 2);
  for (size_t i = 0; i < periods.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    periods[i] = std::pow(static_cast<float>(theta), exponent);
  }
  return periods;
}

std::vector<float> PlainFrequencies(double theta, int dim) {
  std::vector<float> frequencies = Periods(theta, dim);
  for (float& value : frequencies) value = 1.0f / value;
  return frequencies;
}

double DynamicTheta(const RopeConfig& config, int dim, int max_positions, int context) {
  const double length = std::max(context, max_positions);
  const double stretch = config.factor * length / max_positions - (config.factor - 1);
  return config.theta * std::pow(stretch, static_cast<double>(dim) / (dim - 2));
}

// Long wavelengths are stretched by `factor`, short ones kept, those between blended.
void StretchLlama3(const RopeConfig& config, std::vector<float>* frequencies) {
  const auto trained = static_cast<float>(config.trained_positions);
  const auto factor = static_cast<float>(config.factor);
  const auto low = static_cast<float>(config.low_freq_factor);
  const auto high = static_cast<float>(config.high_freq_factor);
  const auto longest_kept = static_cast<float>(config.trained_positions / config.high_freq_factor);
  const auto shortest_stretched =
      static_cast<float>(config.trained_positions / config.low_freq_factor);
  for (float& frequency : *frequencies) {
    const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
    if (wavelength < longest_kept) continue;
    if (wavelength > shortest_stretched) {
      frequency /= factor;
      continue;
    }
    const float smooth = (trained / wavelength - low) / (high - low);
    frequency = (1 - smooth) * frequency / factor + smooth * frequency;
  }
}

// The dimension whose wavelength turns `rotations` times in the trained length.
double YarnDimension(const RopeConfig& config, int dim, double rotations) {
  const double ratio = config.trained_positions / (rotations * 2 * std::numbers::pi);
  return dim * std::log(ratio) / (2 * std::log(config.theta));
}

std::vector<float> YarnFrequencies(const RopeConfig& config, int dim) {
  double low = YarnDimension(config, dim, config.beta_fast);
  double high = YarnDimension(config, dim, config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> frequencies = Periods(config.theta, dim);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1 - std::clamp(ramp, 0.0f, 1.0f);
    const float plain = 1.0f / frequencies[i];
    const float stretched = 1.0f / (static_cast<float>(config.factor) * frequencies[i]);
    frequencies[i] = stretched * (1 - kept) + plain * kept;
  }
  return frequencies;
}

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double YarnScale(const RopeConfig& config) {
  if (config.attention_factor) return *config.attention_factor;
  if (config.mscale && config.mscale_all_dim) {
    return YarnMagnitude(config.factor, *config.mscale) /
           YarnMagnitude(config.factor, *config.mscale_all_dim);
  }
  return YarnMagnitude(config.factor, 1.0);
}

}  // namespace

const char* RopeKindName(RopeKind kind) {
  for (const auto& [value, name] : kNames) {
    if (value == kind) return name;
  }
  return "unknown";
}

bool ParseRopeKind(std::string_view name, RopeKind* kind) {
  for (const auto& [value, known] : kNames) {
    if (name == known) {
      *kind = value;
      return true;
    }
  }
  return false;
}

Status CheckRope(const RopeConfig& config, int head_dim, const char* what) {
  constexpr Range kPartialRange{.low = 0, .high = 1, .above_low = true};
  constexpr Range kThetaRange{.low = 1, .high = 1e30, .above_low = true};
  constexpr Range kFactorRange{1, 1e6};
  TALON_RETURN_IF_ERROR(
      CheckRange("partial_rotary_factor", config.partial_rotary_factor, kPartialRange)
          .WithContext(what));
  const int dim = config.RotaryDim(head_dim);
  if (dim < 2 || dim % 2 != 0) {
    return InvalidArgument("{}: {} of {} head elements would be rotated, expected an even number",
                           what, dim, head_dim);
  }
  TALON_RETURN_IF_ERROR(CheckRange("rope_theta", config.theta, kThetaRange).WithContext(what));
  TALON_RETURN_IF_ERROR(CheckRange("rope factor", config.factor, kFactorRange).WithContext(what));
  if (config.kind == RopeKind::kDynamic && dim < 4) {
    return InvalidArgument("{}: dynamic rope needs at least 4 rotated elements, got {}", what, dim);
  }
  if (config.kind == RopeKind::kLlama3 && config.high_freq_factor <= config.low_freq_factor) {
    return InvalidArgument("{}: high_freq_factor {} is not above low_freq_factor {}", what,
                           config.high_freq_factor, config.low_freq_factor);
  }
  const bool extended = config.kind == RopeKind::kLlama3 || config.kind == RopeKind::kYarn;
  if (!extended) return OkStatus();
  return CheckRange("original_max_position_embeddings", config.trained_positions, {.low = 1})
      .WithContext(what);
}

RopeTable ComputeRope(const RopeConfig& config, int head_dim, int max_positions, int context) {
  const int dim = config.RotaryDim(head_dim);
  RopeTable table;
  switch (config.kind) {
    case RopeKind::kDefault:
      table.inv_freq = PlainFrequencies(config.theta, dim);
      break;
    case RopeKind::kDynamic:
      table.inv_freq = PlainFrequencies(DynamicTheta(config, dim, max_positions, context), dim);
      break;
    case RopeKind::kLinear:
      table.inv_freq = PlainFrequencies(config.theta, dim);
      for (float& frequency : table.inv_freq) frequency /= static_cast<float>(config.factor);
      break;
    case RopeKind::kLlama3:
      table.inv_freq = PlainFrequencies(config.theta, dim);
      StretchLlama3(config, &table.inv_freq);
      break;
    case RopeKind::kYarn:
      table.inv_freq = YarnFrequencies(config, dim);
      table.scale = static_cast<float>(YarnScale(config));
      break;
  }
  return table;
}

}  // namespace talon
