// Settings from YAML: every key reaches its field, and every mistake is named.
#include <gtest/gtest.h>

#include <set>

#include "base/file.h"
#include "setup/engine_settings.h"
#include "setup/settings.h"

namespace talon {
namespace {

constexpr unsigned kEngineSets = kModelSettings | kSamplingSettings | kSpeculativeSettings;
constexpr unsigned kWorkerSets = kModelSettings | kWorkerSettings | kDraftWorkerSettings;
constexpr unsigned kRemoteSets = kEngineSets | kRemoteSettings | kTargetSettings;

class ConfigTest : public testing::Test {
 protected:
  Status Load(const std::string& yaml) {
    const std::string path = testing::TempDir() + "/talon_config_test.yaml";
    EXPECT_TRUE(WriteFile(path, yaml).ok());
    return LoadConfigFile(path, &config_);
  }
  // The error of a file, without the file's name: "1: threads: 'x', must be a whole number".
  std::string ErrorOf(const std::string& yaml) {
    const std::string name = "talon_config_test.yaml:";
    const std::string message = Load(yaml).message();
    const size_t at = message.find(name);
    return at == std::string::npos ? message : message.substr(at + name.size());
  }

  Config config_;
};

// A value that differs from every default, in YAML.
struct Sample {
  std::string operator()(const bool* value) const { return *value ? "false" : "true"; }
  std::string operator()(const int*) const { return "77"; }
  std::string operator()(const int64_t*) const { return "9007199254740993"; }
  std::string operator()(const float*) const { return "0.375"; }
  std::string operator()(const std::string*) const { return "some text"; }
  std::string operator()(const std::vector<std::string>*) const { return "[one, two]"; }
  std::string operator()(const std::vector<int>*) const { return "[3, 5]"; }
};

struct HasSample {
  bool was;  // the default of a bool
  bool operator()(const bool* value) const { return *value != was; }
  bool operator()(const int* value) const { return *value == 77; }
  bool operator()(const int64_t* value) const { return *value == 9007199254740993; }
  bool operator()(const float* value) const { return *value == 0.375f; }
  bool operator()(const std::string* value) const { return *value == "some text"; }
  bool operator()(const std::vector<std::string>* value) const {
    return *value == std::vector<std::string>{"one", "two"};
  }
  bool operator()(const std::vector<int>* value) const { return *value == std::vector<int>{3, 5}; }
};

TEST_F(ConfigTest, EverySettingRoundTrips) {
  for (const Setting& setting : SettingsOf(&config_, kRemoteSets | kWorkerSets)) {
    bool was = false;
    if (auto* const* flag = std::get_if<bool*>(&setting.value)) was = **flag;
    const std::string line = setting.key + ": " + std::visit(Sample(), setting.value) + "\n";
    const std::string yaml = setting.group.empty() ? line : setting.group + ":\n  " + line;
    EXPECT_FALSE(std::visit(HasSample{was}, setting.value)) << setting.key;
    const Status status = Load(yaml);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(std::visit(HasSample{was}, setting.value)) << yaml;
  }
}

class SettingNames : public ConfigTest, public testing::WithParamInterface<unsigned> {};

// Among the settings that one command takes together.
INSTANTIATE_TEST_SUITE_P(Commands, SettingNames, testing::Values(kRemoteSets, kWorkerSets));

TEST_P(SettingNames, AreUniqueAndFlagsFollowTheKeys) {
  std::set<std::string> keys, flags;
  for (const Setting& setting : SettingsOf(&config_, GetParam())) {
    EXPECT_TRUE(keys.insert(setting.group + "." + setting.key).second) << setting.key;
    EXPECT_TRUE(flags.insert(setting.flag).second) << setting.flag;
    if (!setting.alias.empty()) {
      EXPECT_TRUE(keys.insert(setting.group + "." + setting.alias).second) << setting.alias;
    }
    EXPECT_EQ(setting.flag.substr(0, 2), "--");
    EXPECT_EQ(setting.flag.find('_'), std::string::npos) << setting.flag;
    EXPECT_FALSE(setting.help.empty()) << setting.key;
    EXPECT_FALSE(setting.kind.empty()) << setting.key;
  }
}

TEST_F(ConfigTest, SetsOfSettings) {
  const size_t all = SettingsOf(&config_, kEngineSets).size();
  const size_t model = SettingsOf(&config_, kModelSettings).size();
  const size_t sampling = SettingsOf(&config_, kSamplingSettings).size();
  const size_t speculative = SettingsOf(&config_, kSpeculativeSettings).size();
  EXPECT_EQ(all, model + sampling + speculative);
  EXPECT_TRUE(SettingsOf(&config_, 0).empty());
}

// One file may serve both kinds of workers and their client.
TEST_F(ConfigTest, WorkersAndTheirClientHaveGroupsOfTheirOwn) {
  const Status status = Load(
      "worker_config:\n"
      "  port: 7\n"
      "  num_beams: 3\n"
      "  tls_cert_file: worker.pem\n"
      "remote_config:\n"
      "  target_address: localhost:7\n"
      "  num_beams: 2\n"
      "  tls_cert_file: client.pem\n"
      "port: 8\n");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config_.worker.port, 7);
  EXPECT_EQ(config_.serve.port, 8);
  EXPECT_EQ(config_.worker.num_beams, 3);
  EXPECT_EQ(config_.remote.num_beams, 2);
  EXPECT_EQ(config_.worker.tls.cert_file, "worker.pem");
  EXPECT_EQ(config_.remote.tls.cert_file, "client.pem");
  EXPECT_EQ(ErrorOf("worker_config: 5\n"), "1: worker_config: '5', must be a map");
  EXPECT_EQ(ErrorOf("remote_confg:\n  port: 1\n"),
            "1: unknown key 'remote_confg', did you mean 'remote_config'?");
}

TEST(WorkerConfigTest, WhatIsOutOfRangeIsNamed) {
  EXPECT_TRUE(CheckWorkerConfig({}).ok());
  EXPECT_EQ(CheckWorkerConfig({.session_ttl_seconds = 29}).message(),
            "session_ttl_seconds: 29, must be 30 to 86400");
  EXPECT_EQ(CheckWorkerConfig({.num_beams = 17}).message(), "num_beams: 17, must be 1 to 16");
  EXPECT_FALSE(CheckWorkerConfig({.port = 65536}).ok());
  EXPECT_FALSE(CheckWorkerConfig({.handler_threads = 0}).ok());
  EXPECT_FALSE(CheckWorkerConfig({.metrics_port = 65536}).ok());
  EXPECT_FALSE(CheckWorkerConfig({.max_tree_nodes = 0}).ok());
  EXPECT_FALSE(CheckWorkerConfig({.draft_temperature = -0.5f}).ok());
}

TEST(RemoteConfigTest, WhatIsOutOfRangeIsNamed) {
  EXPECT_TRUE(CheckRemoteConfig({}).ok());
  EXPECT_EQ(CheckRemoteConfig({.max_draft_tokens = 65}).message(),
            "max_draft_tokens: 65, must be 1 to 64");
  EXPECT_FALSE(CheckRemoteConfig({.max_rounds = -1}).ok());
  EXPECT_FALSE(CheckRemoteConfig({.timeout_s = 0}).ok());
  EXPECT_FALSE(CheckRemoteConfig({.draft_temperature = -0.5f}).ok());
  EXPECT_FALSE(CheckRemoteConfig({.simulated_rtt_ms = -1}).ok());
}

// Spellings that users bring from seed 000's and 004's configurations.
TEST_F(ConfigTest, SpeculativeGroup) {
  const Status status = Load(
      "model: some/dir\n"
      "speculative_config:\n"
      "  enable_speculative_decoding: true\n"
      "  method: STANDALONE\n"
      "  draft_model_path: other/dir\n"
      "  num_steps: 5\n"
      "  eagle_topk: 4\n"
      "  num_draft_tokens: 16\n"
      "  accept_threshold_single: 0.9\n"
      "  accept_threshold_acc: 0.8\n"
      "  draft_min_prob: 0.1\n"
      "  enable_nwor: false\n"
      "  scv_chunk_size: 8\n"
      "max_tokens: 9\n");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config_.model, "some/dir");
  EXPECT_EQ(config_.sampling.max_tokens, 9);
  EXPECT_EQ(config_.speculative.method, "STANDALONE");
  EXPECT_EQ(config_.speculative.draft_model_path, "other/dir");
  EXPECT_EQ(config_.speculative.num_steps, 5);
  EXPECT_EQ(config_.speculative.eagle_topk, 4);
  EXPECT_EQ(config_.speculative.num_draft_tokens, 16);
  EXPECT_FLOAT_EQ(config_.speculative.accept_threshold_single, 0.9f);
  EXPECT_FLOAT_EQ(config_.speculative.accept_threshold_acc, 0.8f);
  EXPECT_FLOAT_EQ(config_.speculative.draft_min_prob, 0.1f);
  EXPECT_FALSE(config_.speculative.enable_nwor);
  EXPECT_EQ(config_.speculative.scv_chunk_size, 8);
}

// Seed 000's file, as it stands there.
TEST_F(ConfigTest, PartialVerification) {
  const Status status = Load(
      "speculative_config:\n"
      "  enable_speculative_decoding: true\n"
      "  method: eagle3\n"
      "  enable_target_tree: true\n"
      "  enable_specpv: true\n"
      "  specpv_block_size: 32\n"
      "  specpv_n_sink_blocks: 3\n"
      "  specpv_n_retrieval_blocks: 64\n"
      "  specpv_n_window_blocks: 4\n"
      "  specpv_n_spec_tokens_buf: 96\n"
      "  specpv_partial_threshold: 2048\n"
      "  specpv_full_refresh_interval: 16\n"
      "  specpv_mode: fast\n"
      "  specpv_selector: quest_bound\n"
      "  specpv_reduce: root\n"
      "  specpv_adaptive: true\n"
      "  specpv_shadow_rate: 0.25\n"
      "  specpv_error_target: 0.125\n");
  ASSERT_TRUE(status.ok()) << status.message();
  const auto made = MakeSpecPvConfig(config_);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(made->enabled);
  EXPECT_EQ(made->block_size, 32);
  EXPECT_EQ(made->sink_blocks, 3);
  EXPECT_EQ(made->retrieval_blocks, 64);
  EXPECT_EQ(made->window_blocks, 4);
  EXPECT_EQ(made->buffer_tokens, 96);
  EXPECT_EQ(made->partial_threshold, 2048);
  EXPECT_EQ(made->full_refresh_interval, 16);
  EXPECT_EQ(made->mode, SpecPvMode::kFast);
  EXPECT_EQ(made->selector, SpecPvSelector::kQuestBound);
  EXPECT_EQ(made->reduce, SpecPvReduce::kRoot);
  EXPECT_TRUE(made->adaptive);
  EXPECT_FLOAT_EQ(made->shadow_rate, 0.25f);
  EXPECT_FLOAT_EQ(made->error_target, 0.125f);
}

TEST_F(ConfigTest, PartialVerificationIsOffByDefault) {
  const auto made = MakeSpecPvConfig(config_);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const SpecPvConfig defaults;
  EXPECT_FALSE(made->enabled);
  EXPECT_EQ(made->mode, defaults.mode);
  EXPECT_EQ(made->selector, defaults.selector);
  EXPECT_EQ(made->reduce, defaults.reduce);
  EXPECT_EQ(made->Budget(), defaults.Budget());
}

TEST_F(ConfigTest, OtherNamesOfTheSameSetting) {
  ASSERT_TRUE(Load("speculative_config:\n"
                   "  specpv_full_refresh_steps: 9\n"
                   "  enable_eagle_target_tree: false\n")
                  .ok());
  EXPECT_EQ(config_.speculative.specpv.values.full_refresh_interval, 9);
  EXPECT_FALSE(config_.speculative.enable_target_tree);
  EXPECT_EQ(ErrorOf("specpv_full_refresh_steps: 9\n"),
            "1: key 'specpv_full_refresh_steps' belongs under speculative_config");
}

TEST_F(ConfigTest, BadPartialVerificationNamesKeyAndValue) {
  const auto error_of = [this](const std::string& line) {
    config_ = Config();
    const Status loaded = Load("speculative_config: {" + line + "}\n");
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    return MakeSpecPvConfig(config_).status().message();
  };
  EXPECT_EQ(error_of("specpv_mode: quick"), "specpv_mode: 'quick', must be exact or fast");
  EXPECT_EQ(error_of("specpv_selector: best"),
            "specpv_selector: 'best', must be auto, attention, quest, quest_bound, h2o, streaming "
            "or sliding");
  EXPECT_EQ(error_of("specpv_reduce: last"), "specpv_reduce: 'last', must be mean, max or root");
  EXPECT_EQ(error_of("specpv_block_size: 17"), "specpv_block_size: 17, must be 8, 16, 32 or 64");
  EXPECT_EQ(error_of("specpv_full_refresh_steps: 0"),
            "specpv_full_refresh_interval: 0, must be 1 to 1048576");
  EXPECT_EQ(error_of("specpv_shadow_rate: -1"), "specpv_shadow_rate: -1, must be 0 to 1");
  EXPECT_EQ(ErrorOf("speculative_config: {specpv_n_sink_block: 2}\n"),
            "1: unknown key 'specpv_n_sink_block', did you mean 'specpv_n_sink_blocks'?");
}

TEST_F(ConfigTest, WhatIsNotInTheFileKeepsItsValue) {
  config_.threads = 3;
  ASSERT_TRUE(Load("max_tokens: 9\n").ok());
  EXPECT_EQ(config_.threads, 3);
  EXPECT_EQ(config_.sampling.max_tokens, 9);
}

TEST_F(ConfigTest, EmptyFilesSetNothing) {
  EXPECT_TRUE(Load("").ok());
  EXPECT_TRUE(Load("# nothing but a comment\n").ok());
}

TEST_F(ConfigTest, ListsMayBeSingleValues) {
  ASSERT_TRUE(Load("stop: END\nstop_token_ids: 7\n").ok());
  EXPECT_EQ(config_.sampling.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(config_.sampling.stop_token_ids, std::vector<int>{7});
}

TEST_F(ConfigTest, UnknownKeysNameTheNearest) {
  EXPECT_EQ(ErrorOf("threads: 2\nmax_token: 3\n"),
            "2: unknown key 'max_token', did you mean 'max_tokens'?");
  EXPECT_EQ(ErrorOf("kv-dtype: f32\n"), "1: unknown key 'kv-dtype', did you mean 'kv_dtype'?");
  EXPECT_EQ(ErrorOf("speculative_conf: {}\n"),
            "1: unknown key 'speculative_conf', did you mean 'speculative_config'?");
  EXPECT_EQ(ErrorOf("speculative_config:\n  scv_chunk: 4\n"),
            "2: unknown key 'scv_chunk', did you mean 'scv_chunk_size'?");
  EXPECT_EQ(ErrorOf("zzzzzzzz: 1\n"), "1: unknown key 'zzzzzzzz'");
}

TEST_F(ConfigTest, KeysOfTheOtherGroupSayWhereTheyBelong) {
  EXPECT_EQ(ErrorOf("num_steps: 3\n"), "1: key 'num_steps' belongs under speculative_config");
  EXPECT_EQ(ErrorOf("speculative_config: {threads: 3}\n"),
            "1: key 'threads' belongs outside of speculative_config");
}

TEST_F(ConfigTest, ValuesOfTheWrongTypeNameKeyValueAndLine) {
  EXPECT_EQ(ErrorOf("\nthreads: many\n"), "2: threads: 'many', must be a whole number");
  EXPECT_EQ(ErrorOf("threads: 1.5\n"), "1: threads: '1.5', must be a whole number");
  EXPECT_EQ(ErrorOf("threads: 99999999999\n"), "1: threads: '99999999999', must be a whole number");
  EXPECT_EQ(ErrorOf("seed: 99999999999999999999\n"),
            "1: seed: '99999999999999999999', must be a whole number");
  EXPECT_EQ(ErrorOf("top_p: high\n"), "1: top_p: 'high', must be a number");
  EXPECT_EQ(ErrorOf("kv_audit: 3\n"), "1: kv_audit: '3', must be true or false");
  EXPECT_EQ(ErrorOf("model: [a, b]\n"), "1: model: a list, must be text");
  EXPECT_EQ(ErrorOf("model:\n"), "1: model: no value, must be text");
  EXPECT_EQ(ErrorOf("stop: {a: b}\n"), "1: stop: a map, must be a list of texts");
  EXPECT_EQ(ErrorOf("stop_token_ids: [1, x]\n"),
            "1: stop_token_ids: a list, must be a list of whole numbers");
  EXPECT_EQ(ErrorOf("speculative_config: [a]\n"), "1: speculative_config: a list, must be a map");
  EXPECT_EQ(ErrorOf("[a, b]: 1\n"), "1: a key is a list, must be text");
}

TEST_F(ConfigTest, FilesThatAreNotSettings) {
  EXPECT_NE(ErrorOf("a: [1, 2\n").find("not valid YAML"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(100000, '[')).find("not valid YAML"), std::string::npos);
  EXPECT_NE(ErrorOf("- a\n- b\n").find("not a map of settings"), std::string::npos);
  EXPECT_NE(ErrorOf("text").find("not a map of settings"), std::string::npos);
  const Status missing = LoadConfigFile(testing::TempDir() + "/no_such_file.yaml", &config_);
  EXPECT_NE(missing.message().find("no_such_file.yaml"), std::string::npos);
}

}  // namespace
}  // namespace talon
