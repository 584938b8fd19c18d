#include "model/files/quant_config.h"

#include <fmt/core.h>

#include <vector>

#include "base/json.h"
#include "model/config_fields.h"

namespace talon {
namespace {

Status Unknown(const std::string& what, const char* key, const Json& value, const char* supported) {
  return InvalidArgument("{}: {} {} is not supported (supported: {})", what, key, BriefJson(value),
                         supported);
}

Status CheckBits(const std::string& what, int bits) {
  if (bits == 4 || bits == 8) return OkStatus();
  return Unknown(what, "bits", Json(bits), "4, 8");
}

Result<QuantConfig> ParseGptq(const ConfigFields& fields) {
  QuantConfig config{.method = QuantMethod::kGptq};
  TALON_ASSIGN_OR_RETURN(config.bits, fields.Int("bits", 1, 32));
  TALON_RETURN_IF_ERROR(CheckBits(fields.what(), config.bits));
  TALON_ASSIGN_OR_RETURN(const std::string format, fields.String("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    return Unknown(fields.what(), "checkpoint_format", Json(format), "gptq, gptq_v2");
  }
  config.zeros_minus_one = format == "gptq";
  return config;
}

Result<QuantConfig> ParseAwq(const ConfigFields& fields) {
  QuantConfig config{.method = QuantMethod::kAwq};
  TALON_ASSIGN_OR_RETURN(config.bits, fields.Int("bits", 1, 32, 4));
  if (config.bits != 4) return Unknown(fields.what(), "bits", Json(config.bits), "4");
  TALON_ASSIGN_OR_RETURN(const std::string version, fields.String("version", "gemm"));
  if (version != "gemm" && version != "GEMM") {
    return Unknown(fields.what(), "version", Json(version), "gemm");
  }
  return config;
}

Result<QuantConfig> ParseCompressed(const ConfigFields& fields) {
  QuantConfig config{.method = QuantMethod::kCompressed, .bits = 0};
  TALON_ASSIGN_OR_RETURN(const std::string format, fields.String("format", ""));
  constexpr const char* kFormats =
      "float-quantized, int-quantized, naive-quantized, pack-quantized";
  bool known = false;
  for (const char* name :
       {"float-quantized", "int-quantized", "naive-quantized", "pack-quantized"}) {
    known |= format == name;
  }
  if (!known) return Unknown(fields.what(), "format", Json(format), kFormats);
  const Json* groups = fields.Find("config_groups");
  if (groups == nullptr || !groups->is_object()) {
    return InvalidArgument("{}: config_groups is missing", fields.what());
  }
  for (const auto& [name, group] : groups->items()) {
    const Json weights = group.is_object() ? group.value("weights", Json()) : Json();
    if (!weights.is_object()) continue;
    const ConfigFields inner(weights,
                             fmt::format("{}: config_groups.{}.weights", fields.what(), name));
    TALON_ASSIGN_OR_RETURN(const int bits, inner.Int("num_bits", 1, 32));
    TALON_RETURN_IF_ERROR(CheckBits(inner.what(), bits));
    if (config.bits != 0 && config.bits != bits) {
      return InvalidArgument("{}: groups of {} and of {} bits together are not supported",
                             fields.what(), config.bits, bits);
    }
    config.bits = bits;
  }
  if (config.bits == 0) return InvalidArgument("{}: no group has weights", fields.what());
  return config;
}

Result<QuantConfig> ParseFp8(const ConfigFields& fields) {
  TALON_ASSIGN_OR_RETURN(const std::string format, fields.String("fmt", "e4m3"));
  if (format != "e4m3") return Unknown(fields.what(), "fmt", Json(format), "e4m3");
  QuantConfig config{.method = QuantMethod::kFp8, .bits = 8};
  TALON_ASSIGN_OR_RETURN(const std::vector<int> block, fields.IntList("weight_block_size"));
  if (block.empty()) return config;
  if (block.size() != 2 || block[0] < 1 || block[1] < 1) {
    return Unknown(fields.what(), "weight_block_size", Json(block), "two sizes");
  }
  config.block_rows = block[0];
  config.block_cols = block[1];
  return config;
}

}  // namespace

Result<QuantConfig> ParseQuantConfig(const Json& json, const std::string& what) {
  constexpr const char* kMethods = "awq, compressed-tensors, fp8, gptq, and mxfp4 of gpt_oss";
  if (!json.is_object()) return Unknown(what, "the value", json, kMethods);
  const ConfigFields fields(json, what);
  TALON_ASSIGN_OR_RETURN(const std::string method, fields.String("quant_method", ""));
  if (method == "gptq") return ParseGptq(fields);
  if (method == "awq") return ParseAwq(fields);
  if (method == "fp8") return ParseFp8(fields);
  if (method == "compressed-tensors") return ParseCompressed(fields);
  return Unknown(what, "quant_method", Json(method), kMethods);
}

}  // namespace talon
