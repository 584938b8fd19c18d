#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "model/config_fields.h"
#include "model/files/model_dir.h"

namespace talon {
namespace {

// Generous for any dense model, small enough that products of two fit an int.
constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxHidden = 1 << 17;
constexpr int kMaxIntermediate = 1 << 20;
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 1024;
constexpr int kMaxPositions = 1 << 28;

// What the families leave unsaid in config.json, as Hugging Face's classes fill it in.
struct FamilyInfo {
  ModelFamily family;
  const char* name;  // model_type
  const char* architecture;
  int positions;
  int head_dim;        // 0: hidden_size / heads
  int sliding_window;  // where the key is missing; 0: none
};
constexpr std::array<FamilyInfo, 4> kFamilies = {{
    {ModelFamily::kLlama, "llama", "LlamaForCausalLM", 2048, 0, 0},
    {ModelFamily::kMistral, "mistral", "MistralForCausalLM", 131072, 0, 4096},
    {ModelFamily::kQwen2, "qwen2", "Qwen2ForCausalLM", 32768, 0, 4096},
    {ModelFamily::kQwen3, "qwen3", "Qwen3ForCausalLM", 32768, 128, 4096},
}};

Status UnsupportedArchitecture(const std::string& what, const std::string& found) {
  std::string supported;
  for (const FamilyInfo& info : kFamilies) {
    supported += supported.empty() ? "" : ", ";
    supported += info.architecture;
  }
  return InvalidArgument("{}: architecture {} is not supported (supported: {})", what, found,
                         supported);
}

// `architectures` decides; files without it are judged by `model_type`.
Result<FamilyInfo> FindFamily(const ConfigFields& fields) {
  const Json* list = fields.Find("architectures");
  if (list != nullptr) {
    const bool named = list->is_array() && !list->empty() && (*list)[0].is_string();
    for (const FamilyInfo& info : kFamilies) {
      if (named && (*list)[0].get<std::string>() == info.architecture) return info;
    }
    return UnsupportedArchitecture(fields.what(), BriefJson(named ? (*list)[0] : *list));
  }
  TALON_ASSIGN_OR_RETURN(const std::string type, fields.String("model_type", ""));
  for (const FamilyInfo& info : kFamilies) {
    if (type == info.name) return info;
  }
  return UnsupportedArchitecture(fields.what(), type.empty() ? "(none named)" : BriefJson(type));
}

Status ParseSizes(const ConfigFields& fields, const FamilyInfo& info, ModelConfig* config) {
  TALON_ASSIGN_OR_RETURN(config->vocab_size, fields.Int("vocab_size", 1, kMaxVocab));
  TALON_ASSIGN_OR_RETURN(config->hidden_size, fields.Int("hidden_size", 1, kMaxHidden));
  TALON_ASSIGN_OR_RETURN(config->num_layers, fields.Int("num_hidden_layers", 1, kMaxLayers));
  TALON_ASSIGN_OR_RETURN(config->num_heads, fields.Int("num_attention_heads", 1, kMaxHeads));
  TALON_ASSIGN_OR_RETURN(config->num_kv_heads,
                         fields.Int("num_key_value_heads", 1, kMaxHeads, config->num_heads));
  TALON_ASSIGN_OR_RETURN(config->intermediate_size,
                         fields.Int("intermediate_size", 1, kMaxIntermediate));
  TALON_ASSIGN_OR_RETURN(config->max_position_embeddings,
                         fields.Int("max_position_embeddings", 1, kMaxPositions, info.positions));
  const int head_dim = info.head_dim != 0 ? info.head_dim : config->hidden_size / config->num_heads;
  const bool derived = info.head_dim == 0 && fields.Find("head_dim") == nullptr;
  if (derived && config->hidden_size % config->num_heads != 0) {
    return InvalidArgument("{}: hidden_size {} is not a multiple of num_attention_heads {}",
                           fields.what(), config->hidden_size, config->num_heads);
  }
  TALON_ASSIGN_OR_RETURN(config->head_dim, fields.Int("head_dim", 1, kMaxHeadDim, head_dim));
  if (config->head_dim > kMaxHeadDim) {
    return InvalidArgument("{}: hidden_size {} / num_attention_heads {} is {}, limit {}",
                           fields.what(), config->hidden_size, config->num_heads, config->head_dim,
                           kMaxHeadDim);
  }
  if (config->num_heads % config->num_kv_heads != 0) {
    return InvalidArgument("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}",
                           fields.what(), config->num_heads, config->num_kv_heads);
  }
  return OkStatus();
}

// Biases and norms are part of the architecture in Hugging Face's classes, not all of them options.
Status ParseOptions(const ConfigFields& fields, ModelConfig* config) {
  TALON_ASSIGN_OR_RETURN(const bool attention_bias, fields.Bool("attention_bias", false));
  TALON_ASSIGN_OR_RETURN(const bool mlp_bias, fields.Bool("mlp_bias", false));
  TALON_ASSIGN_OR_RETURN(config->tie_word_embeddings, fields.Bool("tie_word_embeddings", false));
  switch (config->family) {
    case ModelFamily::kLlama:
      config->qkv_bias = config->output_bias = attention_bias;
      config->mlp_bias = mlp_bias;
      break;
    case ModelFamily::kMistral:
      break;
    case ModelFamily::kQwen2:
      config->qkv_bias = true;
      break;
    case ModelFamily::kQwen3:
      config->qkv_bias = config->output_bias = attention_bias;
      config->qk_norm = true;
      break;
  }
  TALON_ASSIGN_OR_RETURN(const double eps, fields.Positive("rms_norm_eps", 1e-6));
  if (eps > 1) return InvalidArgument("{}: rms_norm_eps {}, limit 1", fields.what(), eps);
  config->rms_norm_eps = static_cast<float>(eps);
  TALON_ASSIGN_OR_RETURN(const std::string act, fields.String("hidden_act", "silu"));
  if (act != "silu") {
    return InvalidArgument("{}: hidden_act \"{}\" is not supported, only silu", fields.what(), act);
  }
  if (const Json* quantization = fields.Find("quantization_config")) {
    const Json method =
        quantization->is_object() ? quantization->value("quant_method", Json()) : *quantization;
    return InvalidArgument("{}: quantization_config ({}) is not supported, only f32, f16 and bf16",
                           fields.what(), BriefJson(method));
  }
  return OkStatus();
}

Status ParseYarn(const ConfigFields& fields, RopeConfig* rope) {
  TALON_ASSIGN_OR_RETURN(rope->attention_factor, fields.OptionalPositive("attention_factor"));
  // Zero means "not given" for these, as in the models that introduced them.
  const auto given = [&](const char* key) {
    const Json* value = fields.Find(key);
    return value != nullptr && !(value->is_number() && value->get<double>() == 0);
  };
  if (given("mscale") && given("mscale_all_dim")) {
    TALON_ASSIGN_OR_RETURN(rope->mscale, fields.OptionalPositive("mscale"));
    TALON_ASSIGN_OR_RETURN(rope->mscale_all_dim, fields.OptionalPositive("mscale_all_dim"));
  }
  if (given("beta_fast")) {
    TALON_ASSIGN_OR_RETURN(rope->beta_fast, fields.Positive("beta_fast"));
  }
  if (given("beta_slow")) {
    TALON_ASSIGN_OR_RETURN(rope->beta_slow, fields.Positive("beta_slow"));
  }
  TALON_ASSIGN_OR_RETURN(rope->truncate, fields.Bool("truncate", true));
  return OkStatus();
}

// `scaling` is rope_parameters or rope_scaling; `top` holds what the older spelling keeps outside.
Status ParseRopeScaling(const ConfigFields& scaling, const ConfigFields& top, int max_positions,
                        RopeConfig* rope) {
  TALON_ASSIGN_OR_RETURN(const std::string old_name, scaling.String("type", "default"));
  TALON_ASSIGN_OR_RETURN(const std::string name, scaling.String("rope_type", old_name));
  if (!ParseRopeKind(name, &rope->kind)) {
    return InvalidArgument(
        "{}: rope type \"{}\" is not supported (supported: default, dynamic, linear, llama3, yarn)",
        scaling.what(), name);
  }
  TALON_ASSIGN_OR_RETURN(rope->theta, scaling.Positive("rope_theta", rope->theta));
  TALON_ASSIGN_OR_RETURN(rope->partial_rotary_factor,
                         scaling.Positive("partial_rotary_factor", rope->partial_rotary_factor));
  if (rope->kind == RopeKind::kDefault) return OkStatus();
  TALON_ASSIGN_OR_RETURN(const int outer, top.Int("original_max_position_embeddings", 1,
                                                  kMaxPositions, max_positions));
  TALON_ASSIGN_OR_RETURN(rope->trained_positions,
                         scaling.Int("original_max_position_embeddings", 1, kMaxPositions, outer));
  if (rope->kind == RopeKind::kYarn && scaling.Find("factor") == nullptr) {
    rope->factor = static_cast<double>(max_positions) / rope->trained_positions;
  } else {
    TALON_ASSIGN_OR_RETURN(rope->factor, scaling.Positive("factor"));
  }
  if (rope->kind == RopeKind::kLlama3) {
    TALON_ASSIGN_OR_RETURN(rope->low_freq_factor, scaling.Positive("low_freq_factor"));
    TALON_ASSIGN_OR_RETURN(rope->high_freq_factor, scaling.Positive("high_freq_factor"));
  }
  if (rope->kind == RopeKind::kYarn) return ParseYarn(scaling, rope);
  return OkStatus();
}

Status ParseRope(const ConfigFields& fields, ModelConfig* config) {
  RopeConfig* rope = &config->rope;
  TALON_ASSIGN_OR_RETURN(rope->theta, fields.Positive("rope_theta", rope->theta));
  TALON_ASSIGN_OR_RETURN(rope->partial_rotary_factor,
                         fields.Positive("partial_rotary_factor", rope->partial_rotary_factor));
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* scaling = fields.Find(key);
    if (scaling == nullptr) continue;
    const std::string what = fields.what() + ": " + key;
    if (!scaling->is_object()) {
      return InvalidArgument("{} is {}, expected an object", what, BriefJson(*scaling));
    }
    TALON_RETURN_IF_ERROR(ParseRopeScaling(ConfigFields(*scaling, what), fields,
                                           config->max_position_embeddings, rope));
    break;
  }
  return CheckRope(*rope, config->head_dim, fields.what().c_str());
}

// Whether some layer of the model sees only a window, and how wide it is; 0 if none does.
Result<int> ActiveSlidingWindow(const ConfigFields& fields, const FamilyInfo& info,
                                const ModelConfig& config) {
  if (info.sliding_window == 0) return 0;
  const bool qwen = info.family == ModelFamily::kQwen2 || info.family == ModelFamily::kQwen3;
  if (qwen) {
    TALON_ASSIGN_OR_RETURN(const bool used, fields.Bool("use_sliding_window", false));
    if (!used) return 0;
  }
  const Json* layers = fields.Find("layer_types");
  if (layers != nullptr && layers->is_array()) {
    if (std::ranges::find(*layers, Json("sliding_attention")) == layers->end()) return 0;
  } else if (qwen) {  // the first max_window_layers see everything
    TALON_ASSIGN_OR_RETURN(const int full, fields.Int("max_window_layers", 0, kMaxLayers, 28));
    if (full >= config.num_layers) return 0;
  }
  // A missing key means the class's default, an explicit null means no window.
  if (fields.Has("sliding_window") && fields.Find("sliding_window") == nullptr) return 0;
  return fields.Int("sliding_window", 1, kMaxPositions, info.sliding_window);
}

Status ParseContext(const ConfigFields& fields, const FamilyInfo& info, ModelConfig* config) {
  config->max_context = config->max_position_embeddings;
  if (config->rope.kind == RopeKind::kYarn) {  // files may state the length before extension
    const double extended = std::floor(config->rope.trained_positions * config->rope.factor);
    config->max_context = static_cast<int>(
        std::clamp<double>(extended, config->max_position_embeddings, kMaxPositions));
  }
  TALON_ASSIGN_OR_RETURN(const int window, ActiveSlidingWindow(fields, info, *config));
  if (window > 0 && window < config->max_context) {
    LogWarning("{}: sliding window of {} tokens: the context is limited from {} to {}",
               fields.what(), window, config->max_context, window);
    config->max_context = window;
  }
  return OkStatus();
}

Status ParseTokenIds(const ConfigFields& fields, ModelConfig* config) {
  TALON_ASSIGN_OR_RETURN(const std::vector<int> bos, fields.IntList("bos_token_id"));
  if (!bos.empty() && bos[0] < config->vocab_size) config->bos_token_id = bos[0];
  TALON_ASSIGN_OR_RETURN(std::vector<int> eos, fields.IntList("eos_token_id"));
  if (eos.empty()) return OkStatus();
  const auto past = [&](int id) { return id >= config->vocab_size; };
  if (const auto it = std::ranges::find_if(eos, past); it != eos.end()) {
    LogWarning("{}: eos_token_id {} is past the vocabulary of {} and cannot occur", fields.what(),
               *it, config->vocab_size);
  }
  std::erase_if(eos, past);
  config->eos_token_ids = std::move(eos);
  return OkStatus();
}

Status ParseDeclaredDType(const ConfigFields& fields, ModelConfig* config) {
  TALON_ASSIGN_OR_RETURN(const std::string old_name, fields.String("torch_dtype", "float32"));
  TALON_ASSIGN_OR_RETURN(const std::string name, fields.String("dtype", old_name));
  if (name == "float32") {
    config->dtype = DType::kF32;
  } else if (name == "float16") {
    config->dtype = DType::kF16;
  } else if (name == "bfloat16") {
    config->dtype = DType::kBF16;
  } else {
    return InvalidArgument("{}: dtype \"{}\" is not supported, only float32, float16 and bfloat16",
                           fields.what(), name);
  }
  return OkStatus();
}

}  // namespace

const char* ModelFamilyName(ModelFamily family) {
  for (const FamilyInfo& info : kFamilies) {
    if (info.family == family) return info.name;
  }
  return "unknown";
}

Result<ModelConfig> ParseModelConfig(const Json& json, const std::string& what) {
  if (!json.is_object()) return InvalidArgument("{}: is not a JSON object", what);
  const ConfigFields fields(json, what);
  TALON_ASSIGN_OR_RETURN(const FamilyInfo info, FindFamily(fields));
  ModelConfig config;
  config.family = info.family;
  TALON_RETURN_IF_ERROR(ParseSizes(fields, info, &config));
  TALON_RETURN_IF_ERROR(ParseOptions(fields, &config));
  TALON_RETURN_IF_ERROR(ParseRope(fields, &config));
  TALON_RETURN_IF_ERROR(ParseContext(fields, info, &config));
  TALON_RETURN_IF_ERROR(ParseTokenIds(fields, &config));
  TALON_RETURN_IF_ERROR(ParseDeclaredDType(fields, &config));
  return config;
}

Status ApplyGenerationConfig(const Json& json, const std::string& what, ModelConfig* config) {
  if (!json.is_object()) return InvalidArgument("{}: is not a JSON object", what);
  return ParseTokenIds(ConfigFields(json, what), config);
}

Result<ModelConfig> LoadModelConfig(const std::string& dir) {
  TALON_RETURN_IF_ERROR(CheckModelDir(dir));
  const std::string path = dir + "/config.json";
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  TALON_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(json, path));
  const std::string generation_path = dir + "/generation_config.json";
  if (FileExists(generation_path)) {
    TALON_ASSIGN_OR_RETURN(const Json generation, ReadJsonFile(generation_path));
    TALON_RETURN_IF_ERROR(ApplyGenerationConfig(generation, generation_path, &config));
  }
  return config;
}

Result<ModelConfig> ShapeByName(std::string_view name) {
  ModelConfig config;
  config.tie_word_embeddings = true;
  config.head_dim = 64;
  config.rms_norm_eps = 1e-5f;
  config.rope.theta = 500000;
  config.max_position_embeddings = config.max_context = 32768;
  config.num_layers = 16;
  config.dtype = DType::kBF16;
  if (name == "llama-1b") {
    config.hidden_size = 2048;
    config.num_heads = 32;
    config.num_kv_heads = 8;
    config.intermediate_size = 8192;
    config.vocab_size = 32000;
    return config;
  }
  if (name == "llama-8b") {
    config.hidden_size = 4096;
    config.num_heads = 32;
    config.num_kv_heads = 8;
    config.head_dim = 128;
    config.intermediate_size = 14336;
    config.vocab_size = 128256;
    config.num_layers = 32;
    config.tie_word_embeddings = false;
    config.max_position_embeddings = config.max_context = 262144;
    return config;
  }
  if (name == "tiny") {
    config.hidden_size = 256;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.intermediate_size = 704;
    config.vocab_size = 8192;
    return config;
  }
  return InvalidArgument("shape \"{}\" is unknown (known: llama-1b, llama-8b, tiny)", name);
}

}  // namespace talon
