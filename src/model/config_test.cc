#include "model/config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "model/test_model.h"

namespace talon {
namespace {

class QuietLog {
 public:
  QuietLog() { SetLogLevel(LogLevel::kOff); }
  ~QuietLog() { SetLogLevel(LogLevel::kWarning); }
};

Result<ModelConfig> ParseConfig(const Json& json) { return ParseModelConfig(json, "config.json"); }

Json With(const std::string& key, const Json& value) {
  Json json = SmallConfig();
  json[key] = value;
  return json;
}

TEST(ModelConfig, HuggingFaceDefaultsFillWhatIsMissing) {
  Json json = SmallConfig();
  json.erase("num_key_value_heads");
  json.erase("max_position_embeddings");
  json.erase("rope_theta");
  const auto config = ParseConfig(json);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, ModelFamily::kLlama);
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->max_position_embeddings, 2048);
  EXPECT_EQ(config->max_context, 2048);
  EXPECT_FLOAT_EQ(config->rms_norm_eps, 1e-6f);
  EXPECT_EQ(config->rope.kind, RopeKind::kDefault);
  EXPECT_EQ(config->rope.theta, 10000);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_EQ(config->bos_token_id, -1);
  EXPECT_TRUE(config->eos_token_ids.empty());
}

TEST(ModelConfig, FamiliesHaveTheirBiasesAndNorms) {
  struct Case {
    const char* architecture;
    bool attention_bias, qkv, output, mlp, norm;
  };
  for (const Case& c : {Case{"LlamaForCausalLM", true, true, true, true, false},
                        Case{"LlamaForCausalLM", false, false, false, true, false},
                        Case{"MistralForCausalLM", true, false, false, false, false},
                        Case{"Qwen2ForCausalLM", false, true, false, false, false},
                        Case{"Qwen3ForCausalLM", true, true, true, false, true},
                        Case{"Qwen3ForCausalLM", false, false, false, false, true}}) {
    Json json = With("architectures", {c.architecture});
    json["attention_bias"] = c.attention_bias;
    json["mlp_bias"] = true;
    json["sliding_window"] = nullptr;
    const auto config = ParseConfig(json);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->qkv_bias, c.qkv) << c.architecture;
    EXPECT_EQ(config->output_bias, c.output) << c.architecture;
    EXPECT_EQ(config->mlp_bias, c.mlp) << c.architecture;
    EXPECT_EQ(config->qk_norm, c.norm) << c.architecture;
  }
  EXPECT_EQ(ParseConfig(With("architectures", {"Qwen3ForCausalLM"}))->head_dim, 128);
}

TEST(ModelConfig, ModelTypeDecidesWithoutArchitectures) {
  Json json = With("model_type", "qwen2");
  json.erase("architectures");
  EXPECT_EQ(ParseConfig(json)->family, ModelFamily::kQwen2);
}

TEST(ModelConfig, BothRopeSpellingsGiveTheSame) {
  const Json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  Json older = With("rope_theta", 500000.0);
  older["rope_scaling"] = scaling;
  older["rope_scaling"]["type"] = "llama3";
  Json newer = SmallConfig();
  newer.erase("rope_theta");
  newer["rope_parameters"] = scaling;
  newer["rope_parameters"]["rope_type"] = "llama3";
  newer["rope_parameters"]["rope_theta"] = 500000.0;
  for (const Json& json : {older, newer}) {
    const auto config = ParseConfig(json);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->rope.kind, RopeKind::kLlama3);
    EXPECT_EQ(config->rope.theta, 500000);
    EXPECT_EQ(config->rope.factor, 8);
    EXPECT_EQ(config->rope.trained_positions, 64);
    EXPECT_EQ(config->rope.high_freq_factor, 4);
  }
}

TEST(ModelConfig, YarnTakesItsOptionsAndExtendsTheContext) {
  const auto config = ParseConfig(With("rope_scaling", {{"rope_type", "yarn"},
                                                        {"factor", 4.0},
                                                        {"original_max_position_embeddings", 256},
                                                        {"beta_fast", 16},
                                                        {"mscale", 1.0},
                                                        {"mscale_all_dim", 0.5},
                                                        {"attention_factor", nullptr},
                                                        {"truncate", false}}));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->rope.beta_fast, 16);
  EXPECT_EQ(config->rope.beta_slow, 1);
  EXPECT_EQ(config->rope.mscale_all_dim, 0.5);
  EXPECT_FALSE(config->rope.attention_factor.has_value());
  EXPECT_FALSE(config->rope.truncate);
  EXPECT_EQ(config->max_context, 1024);
  const auto derived = ParseConfig(
      With("rope_scaling", {{"rope_type", "yarn"}, {"original_max_position_embeddings", 64}}));
  ASSERT_TRUE(derived.ok()) << derived.status().message();
  EXPECT_EQ(derived->rope.factor, 4);
}

TEST(ModelConfig, LayersHaveTheirWindows) {
  using Windows = std::vector<int>;
  Json mistral = With("architectures", {"MistralForCausalLM"});
  mistral["max_position_embeddings"] = 32768;
  EXPECT_EQ(ParseConfig(mistral)->max_context, 32768);
  EXPECT_EQ(ParseConfig(mistral)->windows, (Windows{4096, 4096}));
  mistral["sliding_window"] = 100;
  EXPECT_EQ(ParseConfig(mistral)->windows, (Windows{100, 100}));
  mistral["sliding_window"] = 32768;
  EXPECT_EQ(ParseConfig(mistral)->windows, Windows{}) << "as wide as the context";
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(ParseConfig(mistral)->windows, Windows{});

  Json qwen = With("architectures", {"Qwen2ForCausalLM"});
  qwen["sliding_window"] = 100;
  EXPECT_EQ(ParseConfig(qwen)->windows, Windows{});
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(ParseConfig(qwen)->windows, Windows{}) << "28 full layers by default, the model has 2";
  qwen["max_window_layers"] = 1;
  EXPECT_EQ(ParseConfig(qwen)->windows, (Windows{0, 100}));
  qwen["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(ParseConfig(qwen)->windows, Windows{});
  qwen["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(ParseConfig(qwen)->windows, (Windows{100, 0}));
  qwen["layer_types"] = {"sliding_attention"};
  EXPECT_EQ(ParseConfig(qwen).status().message(),
            "config.json: layer_types is [\"sliding_attention\"], expected a list of 2");
  qwen["layer_types"] = {"full_attention", "linear_attention"};
  EXPECT_EQ(ParseConfig(qwen).status().message(),
            "config.json: layer_types[1] \"linear_attention\" is not supported (supported: "
            "full_attention, sliding_attention)");
}

TEST(ModelConfig, GptOssHasExpertsSinksAndEveryOtherWindow) {
  const auto config = ParseConfig(ExpertsConfig("gpt_oss_mxfp4"));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->windows, (std::vector<int>{12, 0, 12, 0}));
  EXPECT_TRUE(config->sinks);
  EXPECT_TRUE(config->qkv_bias && config->output_bias && config->experts.biases);
  EXPECT_TRUE(config->experts.mxfp4);
  EXPECT_EQ(config->experts.count, 8);
  EXPECT_EQ(config->experts.rule.per_row, 3);
  EXPECT_EQ(config->experts.rule.gate_limit, 7);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(config->IsSparse(i));
  Json other = ExpertsConfig("gpt_oss");
  other.erase("num_experts");
  other["num_local_experts"] = 16;
  other.erase("num_experts_per_tok");
  other["experts_per_token"] = 2;
  EXPECT_EQ(ParseConfig(other)->experts.count, 16);
  EXPECT_EQ(ParseConfig(other)->experts.rule.per_row, 2);
  other["num_hidden_layers"] = 1024;
  other["num_local_experts"] = 4096;
  EXPECT_EQ(ParseConfig(other).status().message(),
            "config.json: 4096 experts in each of 1024 layers, limit 131072 in all");
  other["num_hidden_layers"] = 4;
  other["num_local_experts"] = 16;
  other["experts_per_token"] = 17;
  EXPECT_FALSE(ParseConfig(other).ok());
  Json ragged = ExpertsConfig("gpt_oss_mxfp4");
  ragged["intermediate_size"] = 48;
  EXPECT_EQ(ParseConfig(ragged).status().message(),
            "config.json: mxfp4 needs sizes in multiples of 32, got hidden_size 64 and "
            "intermediate_size 48");
}

TEST(ModelConfig, QwenMoeNamesItsDenseLayers) {
  Json json = ExpertsConfig("qwen3_moe");
  const auto sparse = [&] {
    std::string layers;
    for (int i = 0; i < 4; ++i) layers += ParseConfig(json)->IsSparse(i) ? 'x' : '-';
    return layers;
  };
  EXPECT_EQ(sparse(), "x-xx");
  EXPECT_TRUE(ParseConfig(json)->experts.rule.normalised);
  json.erase("norm_topk_prob");
  EXPECT_FALSE(ParseConfig(json)->experts.rule.normalised);
  json["decoder_sparse_step"] = 1;
  EXPECT_EQ(sparse(), "x-xx");
  json["decoder_sparse_step"] = 2;
  EXPECT_EQ(sparse(), "---x");
  json.erase("mlp_only_layers");
  EXPECT_EQ(sparse(), "-x-x");
}

TEST(ModelConfig, EosIsOneIdOrAListAndGenerationConfigReplacesIt) {
  const QuietLog quiet;
  auto config = ParseConfig(With("eos_token_id", 2));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->eos_token_ids, std::vector<int>{2});
  ASSERT_TRUE(ApplyGenerationConfig({{"eos_token_id", {3, 4, 96}}, {"bos_token_id", 1}},
                                    "generation_config.json", &*config)
                  .ok());
  EXPECT_EQ(config->eos_token_ids, (std::vector<int>{3, 4})) << "96 is past the vocabulary";
  EXPECT_EQ(config->bos_token_id, 1);
  ASSERT_TRUE(ApplyGenerationConfig(Json::object(), "generation_config.json", &*config).ok());
  EXPECT_EQ(config->eos_token_ids, (std::vector<int>{3, 4}));
  EXPECT_FALSE(
      ApplyGenerationConfig({{"eos_token_id", "x"}}, "generation_config.json", &*config).ok());
}

TEST(ModelConfig, UnsupportedArchitectureListsTheSupportedOnes) {
  const auto config = ParseConfig(With("architectures", {"GptNeoForCausalLM"}));
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().message(),
            "config.json: architecture \"GptNeoForCausalLM\" is not supported (supported: "
            "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
            "Qwen3MoeForCausalLM, GptOssForCausalLM)");
}

struct BadField {
  const char* name;
  const char* key;
  Json value;
  const char* expected;
};

class ModelConfigBadField : public testing::TestWithParam<BadField> {};

TEST_P(ModelConfigBadField, IsRefusedByName) {
  const auto config = ParseConfig(With(GetParam().key, GetParam().value));
  ASSERT_FALSE(config.ok());
  const std::string& message = config.status().message();
  EXPECT_TRUE(message.starts_with("config.json: ")) << message;
  EXPECT_NE(message.find(GetParam().expected), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    All, ModelConfigBadField,
    testing::Values(
        BadField{"NegativeHidden", "hidden_size", -32, "hidden_size: -32, must be 1 to"},
        BadField{"ZeroLayers", "num_hidden_layers", 0, "num_hidden_layers: 0"},
        BadField{"HugeVocab", "vocab_size", int64_t{1} << 40, "vocab_size: 1099511627776"},
        BadField{"UnsignedVocab", "vocab_size", UINT64_MAX, "vocab_size: 18446744073709551615"},
        BadField{"FractionalHidden", "hidden_size", 32.5, "hidden_size: 32.5"},
        BadField{"TextHidden", "hidden_size", "32", "hidden_size: \"32\""},
        BadField{"MissingHidden", "hidden_size", nullptr, "hidden_size is missing"},
        BadField{"LongValue", "hidden_size", std::string(1000, 'x'), "xxx..., must be"},
        BadField{"HeadsTimesKv", "num_key_value_heads", 3,
                 "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
        BadField{"HiddenTimesHeads", "hidden_size", 33, "hidden_size 33 is not a multiple"},
        BadField{"OddHeadDim", "head_dim", 7, "7 of 7 head elements would be rotated"},
        BadField{"PartialRotary", "partial_rotary_factor", 1.5, "partial_rotary_factor: 1.5"},
        BadField{"OddRotary", "partial_rotary_factor", 0.4, "3 of 8 head elements"},
        BadField{"ZeroTheta", "rope_theta", 0, "rope_theta: 0"},
        BadField{"ThetaOne", "rope_theta", 1, "rope_theta: 1, must be above 1"},
        BadField{"Eps", "rms_norm_eps", -1e-5, "rms_norm_eps: -1e-05"},
        BadField{"Act", "hidden_act", "gelu", "hidden_act \"gelu\" is not supported"},
        BadField{"Bias", "attention_bias", 1, "attention_bias: 1, must be true or false"},
        BadField{"DType", "dtype", "float8", "dtype \"float8\" is not supported"},
        BadField{"Eos", "eos_token_id", -1, "eos_token_id: -1, must be 0 to 2147483647"},
        BadField{"Architectures", "architectures", Json::array(), "architecture [] is not"},
        BadField{"Quantised", "quantization_config", {{"quant_method", "hqq"}}, "\"hqq\""},
        BadField{
            "GptqBits", "quantization_config", {{"quant_method", "gptq"}, {"bits", 3}}, "bits 3"},
        BadField{"AwqVersion",
                 "quantization_config",
                 {{"quant_method", "awq"}, {"version", "gemv"}},
                 "version \"gemv\""},
        BadField{"Fp8Format",
                 "quantization_config",
                 {{"quant_method", "fp8"}, {"fmt", "e5m2"}},
                 "fmt \"e5m2\""},
        BadField{"CompressedFormat",
                 "quantization_config",
                 {{"quant_method", "compressed-tensors"}, {"format", "marlin-24"}},
                 "format \"marlin-24\""},
        BadField{"RopeText", "rope_scaling", "linear", "rope_scaling is \"linear\""},
        BadField{"RopeKind", "rope_scaling", {{"type", "su"}}, "rope type \"su\" is not supported"},
        BadField{"RopeFactorMissing", "rope_scaling", {{"type", "linear"}}, "factor is missing"},
        BadField{"RopeFactor",
                 "rope_scaling",
                 {{"type", "linear"}, {"factor", 0.5}},
                 "rope factor: 0.5"},
        BadField{"Llama3Bounds",
                 "rope_parameters",
                 {{"rope_type", "llama3"},
                  {"factor", 8},
                  {"low_freq_factor", 4},
                  {"high_freq_factor", 4}},
                 "high_freq_factor 4 is not above low_freq_factor 4"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ModelConfig, NotAnObjectIsRefused) {
  EXPECT_FALSE(ParseConfig(Json::array()).ok());
  EXPECT_FALSE(ParseConfig(Json()).ok());
}

TEST(ModelConfig, PathsThatAreNotDirectoriesAreRefused) {
  const TempDirectory dir;
  const std::string file = dir.path() + "/file";
  ASSERT_TRUE(WriteFile(file, "x").ok());
  EXPECT_EQ(LoadModelConfig(file).status().message(),
            file + ": is a file, expected a model directory");
  EXPECT_EQ(LoadModelConfig(dir.path()).status().message(), dir.path() + ": has no config.json");
  EXPECT_EQ(LoadModelConfig(dir.path() + "/none").status().message(),
            dir.path() + "/none: no such directory");
}

TEST(ModelConfig, ShapesByName) {
  const auto shape = ShapeByName("llama-1b");
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->q_size(), 2048);
  EXPECT_EQ(shape->kv_size(), 512);
  EXPECT_EQ(shape->vocab_size, 32000);
  EXPECT_TRUE(shape->tie_word_embeddings);
  EXPECT_EQ(
      ShapeByName("gpt").status().message(),
      "shape \"gpt\" is unknown (known: llama-1b, llama-8b, llama-70b, llama-70b-small, tiny, "
      "tiny-long, gpt-oss-tiny, gpt-oss-3b, gpt-oss-20b, gpt-oss-120b, qwen3-30b-a3b)");
}

}  // namespace
}  // namespace talon
