// What config.json says about a quantised checkpoint.
#ifndef TALON_MODEL_FILES_QUANT_CONFIG_H_
#define TALON_MODEL_FILES_QUANT_CONFIG_H_

#include <string>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

enum class QuantMethod { kNone, kFp8, kGptq, kAwq, kCompressed };

// `quantization_config` of config.json, as far as the tensors do not say it themselves.
struct QuantConfig {
  QuantMethod method = QuantMethod::kNone;
  int bits = 4;
  bool zeros_minus_one = false;  // GPTQ before its second format
  int block_rows = 128;          // FP8 with scales for blocks
  int block_cols = 128;
};

// `json`: the value of quantization_config, `what` its name in messages. Methods and options that
// are not known are refused by name.
Result<QuantConfig> ParseQuantConfig(const Json& json, const std::string& what);

}  // namespace talon

#endif  // TALON_MODEL_FILES_QUANT_CONFIG_H_
