#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "compute/mxfp4.h"
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
constexpr int kMaxExperts = 4096;
constexpr int64_t kMaxExpertsOfAll = 1 << 17;  // layers together: each is a few tensors to look up

// What the families leave unsaid in config.json, as Hugging Face's classes fill it in.
struct FamilyInfo {
  ModelFamily family;
  const char* name;  // model_type
  const char* architecture;
  int positions;
  int head_dim;        // 0: hidden_size / heads
  int sliding_window;  // where the key is missing; 0: none
};
constexpr std::array<FamilyInfo, 6> kFamilies = {{
    {ModelFamily::kLlama, "llama", "LlamaForCausalLM", 2048, 0, 0},
    {ModelFamily::kMistral, "mistral", "MistralForCausalLM", 131072, 0, 4096},
    {ModelFamily::kQwen2, "qwen2", "Qwen2ForCausalLM", 32768, 0, 4096},
    {ModelFamily::kQwen3, "qwen3", "Qwen3ForCausalLM", 32768, 128, 4096},
    {ModelFamily::kQwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM", 32768, 0, 4096},
    {ModelFamily::kGptOss, "gpt_oss", "GptOssForCausalLM", 131072, 64, 128},
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
    case ModelFamily::kGptOss:
      config->qkv_bias = config->output_bias =
          attention_bias || fields.Find("attention_bias") == nullptr;
      config->sinks = true;
      break;
    case ModelFamily::kQwen3:
    case ModelFamily::kQwen3Moe:
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
  return OkStatus();
}

// One of two spellings of a key.
Result<int> EitherInt(const ConfigFields& fields, const char* key, const char* other, int high) {
  if (fields.Find(key) == nullptr && fields.Find(other) != nullptr)
    return fields.Int(other, 1, high);
  return fields.Int(key, 1, high);
}

// Layers that are named as dense, or skipped by the step.
Status ParseDenseLayers(const ConfigFields& fields, ModelConfig* config) {
  TALON_ASSIGN_OR_RETURN(const std::vector<int> named, fields.IntList("mlp_only_layers"));
  TALON_ASSIGN_OR_RETURN(const int step, fields.Int("decoder_sparse_step", 1, kMaxLayers, 1));
  config->dense_layers.resize(config->num_layers);
  for (int i = 0; i < config->num_layers; ++i) {
    config->dense_layers[i] = (i + 1) % step != 0 || std::ranges::find(named, i) != named.end();
  }
  return OkStatus();
}

Status ParseExperts(const ConfigFields& fields, ModelConfig* config) {
  const bool gpt_oss = config->family == ModelFamily::kGptOss;
  if (!gpt_oss && config->family != ModelFamily::kQwen3Moe) return OkStatus();
  ExpertConfig* experts = &config->experts;
  TALON_ASSIGN_OR_RETURN(experts->count,
                         EitherInt(fields, "num_experts", "num_local_experts", kMaxExperts));
  if (int64_t{experts->count} * config->num_layers > kMaxExpertsOfAll) {
    return InvalidArgument("{}: {} experts in each of {} layers, limit {} in all", fields.what(),
                           experts->count, config->num_layers, kMaxExpertsOfAll);
  }
  TALON_ASSIGN_OR_RETURN(experts->rule.per_row, EitherInt(fields, "num_experts_per_tok",
                                                          "experts_per_token", experts->count));
  if (gpt_oss) {
    experts->intermediate_size = config->intermediate_size;
    experts->biases = true;
    TALON_ASSIGN_OR_RETURN(const double limit, fields.Positive("swiglu_limit", 7.0));
    experts->rule.gate_limit = static_cast<float>(limit);
    return OkStatus();
  }
  TALON_ASSIGN_OR_RETURN(experts->intermediate_size,
                         fields.Int("moe_intermediate_size", 1, kMaxIntermediate));
  TALON_ASSIGN_OR_RETURN(experts->rule.normalised, fields.Bool("norm_topk_prob", false));
  return ParseDenseLayers(fields, config);
}

// Formats of weights other than the plain float types.
Status ParseQuantization(const ConfigFields& fields, ModelConfig* config) {
  const Json* quantization = fields.Find("quantization_config");
  if (quantization == nullptr) return OkStatus();
  const Json method =
      quantization->is_object() ? quantization->value("quant_method", Json()) : *quantization;
  if (method == "mxfp4" && config->family == ModelFamily::kGptOss) {
    if (config->hidden_size % kMxfp4Group != 0 || config->intermediate_size % kMxfp4Group != 0) {
      return InvalidArgument(
          "{}: mxfp4 needs sizes in multiples of {}, got hidden_size {} and "
          "intermediate_size {}",
          fields.what(), kMxfp4Group, config->hidden_size, config->intermediate_size);
    }
    config->experts.mxfp4 = true;
    return OkStatus();
  }
  TALON_ASSIGN_OR_RETURN(config->quantised,
                         ParseQuantConfig(*quantization, fields.what() + ": quantization_config"));
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

bool IsQwen(ModelFamily family) {
  return family == ModelFamily::kQwen2 || family == ModelFamily::kQwen3 ||
         family == ModelFamily::kQwen3Moe;
}

// Which layers see only a window, by `layer_types` or as the family's class fills it in.
Result<std::vector<bool>> SlidingLayers(const ConfigFields& fields, const ModelConfig& config) {
  const int layers = config.num_layers;
  const Json* types = fields.Find("layer_types");
  std::vector<bool> sliding(layers, false);
  if (types != nullptr) {
    if (!types->is_array() || std::ssize(*types) != layers) {
      return InvalidArgument("{}: layer_types is {}, expected a list of {}", fields.what(),
                             BriefJson(*types), layers);
    }
    for (int i = 0; i < layers; ++i) {
      const Json& type = (*types)[i];
      sliding[i] = type == "sliding_attention";
      if (!sliding[i] && type != "full_attention") {
        return InvalidArgument(
            "{}: layer_types[{}] {} is not supported (supported: "
            "full_attention, sliding_attention)",
            fields.what(), i, BriefJson(type));
      }
    }
    return sliding;
  }
  int full = 0;  // the first ones of Qwen see everything
  if (IsQwen(config.family)) {
    TALON_ASSIGN_OR_RETURN(full, fields.Int("max_window_layers", 0, kMaxLayers, 28));
  }
  for (int i = 0; i < layers; ++i) {
    sliding[i] = config.family == ModelFamily::kGptOss ? i % 2 == 0 : i >= full;
  }
  return sliding;
}

Status ParseWindows(const ConfigFields& fields, const FamilyInfo& info, ModelConfig* config) {
  if (info.sliding_window == 0) return OkStatus();
  if (IsQwen(info.family)) {
    TALON_ASSIGN_OR_RETURN(const bool used, fields.Bool("use_sliding_window", false));
    if (!used) return OkStatus();
  }
  // A missing key means the class's default, an explicit null means no window.
  if (fields.Has("sliding_window") && fields.Find("sliding_window") == nullptr) return OkStatus();
  TALON_ASSIGN_OR_RETURN(const int window,
                         fields.Int("sliding_window", 1, kMaxPositions, info.sliding_window));
  TALON_ASSIGN_OR_RETURN(const std::vector<bool> sliding, SlidingLayers(fields, *config));
  // A window as wide as the context is none.
  if (window >= config->max_context || std::ranges::find(sliding, true) == sliding.end()) {
    return OkStatus();
  }
  for (const bool slides : sliding) config->windows.push_back(slides ? window : 0);
  return OkStatus();
}

Status ParseContext(const ConfigFields& fields, const FamilyInfo& info, ModelConfig* config) {
  config->max_context = config->max_position_embeddings;
  if (config->rope.kind == RopeKind::kYarn) {  // files may state the length before extension
    const double extended = std::floor(config->rope.trained_positions * config->rope.factor);
    config->max_context = static_cast<int>(
        std::clamp<double>(extended, config->max_position_embeddings, kMaxPositions));
  }
  return ParseWindows(fields, info, config);
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

double ModelConfig::PerSparseLayer(double total) const {
  int layers = 0;
  for (int layer = 0; layer < num_layers; ++layer) layers += IsSparse(layer) ? 1 : 0;
  return layers == 0 ? 0 : total / layers;
}

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
  TALON_RETURN_IF_ERROR(ParseExperts(fields, &config));
  TALON_RETURN_IF_ERROR(ParseQuantization(fields, &config));
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

}  // namespace talon
