#include "model/heads/eagle_config.h"

#include <gtest/gtest.h>

#include <array>

#include "base/json.h"
#include "base/random.h"
#include "model/heads/test_eagle.h"

namespace talon {
namespace {

const char* const kIds = "eagle_aux_hidden_state_layer_ids";

ModelConfig Target(int layers = 8) {
  Json json = EagleTargetConfig();
  json["num_hidden_layers"] = layers;
  auto config = ParseModelConfig(json, "target");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

Result<EagleConfig> ParseHead(const Json& changes, const ModelConfig& target = Target(),
                              const std::vector<int>& capture = {}) {
  Json json = MakeTestHead().config;
  json.update(changes);
  return ParseEagle3Config(json, "c.json", target, capture);
}

std::string ErrorOf(const Json& changes, const std::vector<int>& capture = {}) {
  const auto config = ParseHead(changes, Target(), capture);
  return config.ok() ? "no error" : config.status().message();
}

// The speculators form: the layer's keys nested.
Json Speculators() {
  Json layer = MakeTestHead().config;
  layer.erase("draft_vocab_size");
  layer["architectures"] = {"LlamaForCausalLM"};
  return {{"architectures", {"Eagle3Speculator"}},
          {"speculators_model_type", "eagle3"},
          {"draft_vocab_size", 40},
          {"transformer_layer_config", layer}};
}

TEST(EagleConfig, OfficialFile) {
  const auto config = ParseHead({{"rms_norm_eps", 1e-5}, {"head_dim", 16}});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->target_hidden_size, 32);
  EXPECT_EQ(config->intermediate_size, 48);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->vocab_size, 96);
  EXPECT_EQ(config->draft_vocab_size, 40);
  EXPECT_EQ(config->max_position_embeddings, 256);
  EXPECT_FLOAT_EQ(config->rms_norm_eps, 1e-5f);
  EXPECT_FLOAT_EQ(config->logit_scale, 1);
  EXPECT_FALSE(config->norm_before_residual);
  EXPECT_FALSE(config->norm_before_fc);
  EXPECT_FALSE(config->fc_norm);
  EXPECT_FALSE(config->norm_output);
  EXPECT_FALSE(config->attention_bias);
}

TEST(EagleConfig, OptionsAreRead) {
  const auto config = ParseHead({{"norm_before_residual", true},
                                 {"norm_before_fc", true},
                                 {"use_aux_norm", true},
                                 {"norm_output", true},
                                 {"logit_scale", 0.5},
                                 {"bias", true},
                                 {"attention_bias", true},
                                 {"mlp_bias", true}});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->norm_before_residual);
  EXPECT_TRUE(config->norm_before_fc);
  EXPECT_TRUE(config->fc_norm);
  EXPECT_TRUE(config->norm_output);
  EXPECT_TRUE(config->fc_bias);
  EXPECT_TRUE(config->attention_bias);
  EXPECT_TRUE(config->mlp_bias);
  EXPECT_FLOAT_EQ(config->logit_scale, 0.5f);
  EXPECT_TRUE(ParseHead({{"eagle_config", {{"norm_before_fc", true}}}})->norm_before_fc);
  EXPECT_EQ(ParseHead({{"draft_vocab_size", nullptr}})->draft_vocab_size, 96);
}

TEST(EagleConfig, SpeculatorsFile) {
  Json json = Speculators();
  json["transformer_layer_config"]["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  auto config = ParseEagle3Config(json, "c.json", Target(), {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->draft_vocab_size, 40);
  EXPECT_EQ(config->rope.kind, RopeKind::kLinear);
  EXPECT_TRUE(config->norm_before_residual) << "the default of these files";
  json["norm_before_residual"] = false;
  config = ParseEagle3Config(json, "c.json", Target(), {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->norm_before_residual);
}

TEST(Eagle3, CaptureConventions) {
  using Layers = std::vector<int>;
  EXPECT_EQ(ParseHead(Json::object())->capture_layers, (Layers{2, 4, 5})) << "[2, n/2, n-3]";
  EXPECT_EQ(ParseHead(Json::object(), Target(33))->capture_layers, (Layers{2, 16, 30}));
  // Speculators name inputs, SpecForge outputs: the same layers.
  EXPECT_EQ(ParseHead({{kIds, {2, 4, 5}}})->capture_layers, (Layers{2, 4, 5}));
  EXPECT_EQ(ParseHead({{"eagle_config", {{kIds, {1, 3, 4}}}}})->capture_layers, (Layers{2, 4, 5}));
  // The last output, before the final norm, is input index n.
  EXPECT_EQ(ParseHead({{kIds, {0, 3, 8}}})->capture_layers, (Layers{0, 3, 8}));
  EXPECT_EQ(ParseHead({{"eagle_config", {{kIds, {0, 2, 7}}}}})->capture_layers, (Layers{1, 3, 8}));
  // The user's list wins, as input indices.
  EXPECT_EQ(ParseHead({{kIds, {2, 4, 5}}}, Target(), {1, 2, 3})->capture_layers, (Layers{1, 2, 3}));
  // Any number of layers.
  EXPECT_EQ(ParseHead({{kIds, {1, 6}}, {"num_aux_hidden_states", 2}})->capture_layers,
            (Layers{1, 6}));
}

TEST(EagleConfig, CaptureErrors) {
  EXPECT_EQ(ErrorOf({{kIds, {2, 4, 9}}}),
            "c.json: eagle_aux_hidden_state_layer_ids: captured layer 9, a target of 8 layers "
            "allows 0 to 8");
  EXPECT_EQ(ErrorOf({{"eagle_config", {{kIds, {2, 4, 8}}}}}),
            "c.json: eagle_config.eagle_aux_hidden_state_layer_ids: captured layer 8, a target of "
            "8 layers allows 0 to 7");
  EXPECT_EQ(ErrorOf({{"eagle_config", {{kIds, {2147483647}}}}}),
            "c.json: eagle_config.eagle_aux_hidden_state_layer_ids: captured layer 2147483647, a "
            "target of 8 layers allows 0 to 7");
  EXPECT_EQ(ErrorOf(Json::object(), {2, -1}),
            "eagle3_capture_layers: captured layer -1, a target of 8 layers allows 0 to 8");
  EXPECT_EQ(ErrorOf({{"num_aux_hidden_states", 4}}),
            "c.json: num_aux_hidden_states 4, but 3 captured layers (the default)");
  EXPECT_EQ(ParseHead(Json::object(), Target(2)).status().message(),
            "the default: captured layer -1, a target of 2 layers allows 0 to 2");
  EXPECT_EQ(ErrorOf({{kIds, std::vector<int>(17, 1)}}),
            "c.json: eagle_aux_hidden_state_layer_ids: 17 captured layers, limit 16");
}

TEST(EagleConfig, MismatchesWithTheTarget) {
  EXPECT_EQ(ErrorOf({{"vocab_size", 95}}), "c.json: vocab_size 95, the target has 96");
  EXPECT_EQ(ErrorOf({{"hidden_size", 64}}),
            "c.json: hidden_size (no target_hidden_size) 64, the target has hidden_size 32");
  EXPECT_EQ(ErrorOf({{"target_hidden_size", 48}}),
            "c.json: target_hidden_size 48, the target has hidden_size 32");
  EXPECT_EQ(ErrorOf({{"draft_vocab_size", 97}}), "c.json: draft_vocab_size: 97, must be 1 to 96");
}

TEST(EagleConfig, OtherHeadsAreRefused) {
  EXPECT_EQ(ErrorOf({{"num_hidden_layers", 2}}),
            "c.json: num_hidden_layers 2, an EAGLE head has 1");
  const std::string rest = " is not an EAGLE-3 head";
  EXPECT_EQ(ErrorOf({{"architectures", {"LlamaForCausalLMEagle"}}}),
            "c.json: \"LlamaForCausalLMEagle\"" + rest);
  EXPECT_EQ(ErrorOf({{"speculators_model_type", "eagle"}}), "c.json: \"eagle\"" + rest);
  EXPECT_EQ(ErrorOf({{"eagle_config", {{"use_aux_hidden_state", false}}}}),
            "c.json: a head with use_aux_hidden_state false" + rest);
  EXPECT_TRUE(ParseHead({{"architectures", {"LlamaForCausalLM"}}}).ok())
      << "official heads say that";
}

TEST(EagleConfig, BadValues) {
  EXPECT_EQ(ErrorOf({{"logit_scale", 0}}), "c.json: logit_scale: 0, must be above 0");
  EXPECT_EQ(ErrorOf({{"logit_scale", 1e9}}),
            "c.json: logit_scale: 1000000000, must be 1e-06 to 1000000");
  EXPECT_EQ(ErrorOf({{"norm_output", "yes"}}),
            "c.json: norm_output: \"yes\", must be true or false");
  EXPECT_EQ(ErrorOf({{"eagle_config", 3}}), "c.json: eagle_config is 3, expected an object");
  EXPECT_EQ(ErrorOf({{"transformer_layer_config", {1}}}),
            "c.json: transformer_layer_config is [1], expected an object");
  EXPECT_EQ(ErrorOf({{kIds, {"a"}}}),
            "c.json: eagle_aux_hidden_state_layer_ids: \"a\", must be a whole number");
  EXPECT_EQ(ParseEagle3Config(Json::array(), "c.json", Target(), {}).status().message(),
            "c.json: is not a JSON object");
  EXPECT_EQ(LoadEagleConfig("/no/such", Target(), {}).status().message(),
            "/no/such: no such directory");
}

// Any value in any place gives an error or a configuration within the limits, never a crash.
TEST(EagleConfig, RandomValuesNeverCrash) {
  const std::array<Json, 16> values = {
      nullptr, true, 0,        -1, 1,  3,   2147483647, -9223372036854775807,
      1e300,   -0.5, "eagle3", "", {}, {1}, {{"a", 1}}, {-1, 1e9, "x"}};
  Json base = Speculators();
  base["eagle_config"] = {{kIds, {1, 3, 4}}, {"use_aux_hidden_state", true}};
  for (const char* key : {"fc_norm", "norm_before_fc", "norm_output", "logit_scale", "bias",
                          "target_hidden_size", "num_aux_hidden_states", kIds}) {
    base[key] = nullptr;
  }
  int rejected = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    Json json = base;
    const auto pick = [&](uint32_t draw, size_t count) {
      const double u = UniformDraw({.seed = 1, .position = round, .draw = draw});
      return static_cast<size_t>(u * static_cast<double>(count));
    };
    for (uint32_t change = 0; change < 1 + round % 3; ++change) {
      Json* object = &json;
      const size_t place = pick(3 * change, 3);
      if (place == 1 && json["transformer_layer_config"].is_object()) {
        object = &json["transformer_layer_config"];
      }
      if (place == 2 && json["eagle_config"].is_object()) object = &json["eagle_config"];
      if (object->empty()) continue;
      auto item = object->begin();
      std::advance(item, static_cast<int64_t>(pick(3 * change + 1, object->size())));
      *item = values[pick(3 * change + 2, values.size())];
    }
    const auto config = ParseEagle3Config(json, "c.json", Target(), {});
    if (!config.ok()) {
      ++rejected;
      EXPECT_EQ(config.status().message().find('\n'), std::string::npos);
      continue;
    }
    EXPECT_EQ(config->vocab_size, 96);
    EXPECT_GE(config->draft_vocab_size, 1);
    EXPECT_LE(config->draft_vocab_size, 96);
    EXPECT_EQ(config->features_size(), 32 * static_cast<int>(config->capture_layers.size()));
  }
  EXPECT_GT(rejected, 500);
}

}  // namespace
}  // namespace talon
