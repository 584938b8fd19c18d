// The table of settings: what is valid, what the help says, and docs/flags.md.
#include "setup/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "setup/engine_settings.h"
#include "setup/settings_page.h"

namespace talon {
namespace {

std::string HelpOfKey(const std::string& key) {
  Config config;
  for (const Setting& setting : SettingsOf(&config, kAllSettings)) {
    if (setting.key == key) return setting.help;
  }
  return "";
}

TEST(Settings, DefaultsAreValid) {
  const Status status = CheckSettings(Config(), kAllSettings);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Settings, ErrorsNameKeyValueAndWhatIsValid) {
  const auto error_of = [](const auto& change) {
    Config config;
    change(&config);
    return CheckSettings(config, kAllSettings).message();
  };
  EXPECT_EQ(error_of([](Config* c) { c->threads = -3; }), "threads: -3, must be 0 to 1024");
  EXPECT_EQ(error_of([](Config* c) { c->block_size = 24; }),
            "block_size: 24, must be 8, 16, 32 or 64");
  EXPECT_EQ(error_of([](Config* c) { c->weights = "INT8"; }),
            "weights: 'INT8', must be auto, f32, f16, bf16, fp8, int8 or int4");
  EXPECT_EQ(error_of([](Config* c) { c->device = "tpu"; }),
            "device: 'tpu', must be cpu, cuda or cuda:N");
  EXPECT_EQ(error_of([](Config* c) { c->sampling.seed = -2; }), "");
  EXPECT_EQ(error_of([](Config* c) { c->sampling.top_p = 1.5f; }), "top_p: 1.5, must be 0 to 1");
  EXPECT_EQ(error_of([](Config* c) { c->serve.port = 65536; }), "port: 65536, must be 0 to 65535");
  EXPECT_EQ(error_of([](Config* c) { c->remote.draft_temperature = -2; }),
            "draft_temperature: -2, must be -1 or 0 to 100");
  EXPECT_EQ(error_of([](Config* c) { c->speculative.acceptance = "maybe"; }),
            "acceptance: 'maybe', must be match, threshold or rejection");
  EXPECT_NE(error_of([](Config* c) { c->speculative.method = "MAGIC"; }).find("MAGIC"),
            std::string::npos);
}

TEST(Settings, OriginsAreThoseThatBrowsersSend) {
  const auto error_of = [](const std::string& origin) {
    Config config;
    config.serve.cors_origin = origin;
    return CheckSettings(config, kServeSettings).message();
  };
  for (const char* good : {"", "*", "https://example.com", "http://127.0.0.1:3000", "null://x"}) {
    EXPECT_EQ(error_of(good), "");
  }
  EXPECT_EQ(error_of("example.com"),
            "cors_origin: 'example.com', must be * or an origin as browsers send it: "
            "'https://example.com'");
  EXPECT_NE(error_of("http://example.com/").find("'http://example.com'"), std::string::npos);
  EXPECT_NE(error_of("https://").find("'https://HOST'"), std::string::npos);
}

TEST(Settings, OtherNamesAreFlagsToo) {
  Config config;
  for (const Setting& setting : SettingsOf(&config, kAllSettings)) {
    if (setting.key == "model") {
      EXPECT_EQ(setting.short_flag, "-m");
      EXPECT_EQ(setting.alias_flag, "--model-path");
    }
    EXPECT_EQ(setting.alias.empty(), setting.alias_flag.empty()) << setting.key;
  }
}

TEST(Settings, EverySetHasItsTitleAndItsOwnRows) {
  unsigned seen = 0;
  Config config;
  for (const auto& [set, title] : SettingSetTitles()) {
    EXPECT_EQ(seen & set, 0u) << title;
    seen |= set;
    EXPECT_FALSE(SettingsOf(&config, set).empty()) << title;
  }
  EXPECT_EQ(seen, kAllSettings);
}

TEST(Settings, OnlyTheSetsThatAreAskedForAreChecked) {
  Config config;
  config.serve.port = -5;
  EXPECT_TRUE(CheckSettings(config, kModelSettings).ok());
  EXPECT_FALSE(CheckSettings(config, kServeSettings).ok());
}

TEST(Settings, SomeNamesMayBeInAnyCase) {
  Config config;
  config.kv_dtype = "BF16";
  config.speculative.ngram_mode = "prob";
  config.speculative.method = "eagle3+lookup";
  const auto made = MakeEngineSettings(config);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->engine.kv_dtype, DType::kBF16);
  EXPECT_EQ(made->drafters.Name(), "EAGLE3,NGRAM");
}

// The table and the code behind a setting know the same names.
TEST(Settings, EveryChoiceIsUnderstood) {
  for (size_t i = 0;; ++i) {
    Config config;
    const auto settings = SettingsOf(&config, kModelSettings | kSpeculativeSettings);
    if (i == settings.size()) break;
    auto* const* text = std::get_if<std::string*>(&settings[i].value);
    if (text == nullptr || settings[i].key == "device") continue;
    for (const SettingChoice& choice : settings[i].choices) {
      **text = choice.name;
      const auto made = MakeEngineSettings(config);
      EXPECT_TRUE(made.ok()) << settings[i].key << ": " << made.status().message();
    }
  }
  WeightFormat format{};
  ActivationFormat activations{};
  Config config;
  for (const Setting& setting : SettingsOf(&config, kModelSettings)) {
    for (const SettingChoice& choice : setting.choices) {
      if (setting.key != "activations") break;
      EXPECT_TRUE(ParseActivationFormat(choice.name, &activations)) << choice.name;
    }
    if (setting.key != "weights") continue;
    for (const SettingChoice& choice : setting.choices) {
      EXPECT_TRUE(ParseWeightFormat(choice.name, &format)) << choice.name;
    }
    EXPECT_EQ(ValidValues(setting), WeightFormatNames());
  }
}

TEST(Settings, HelpNamesWhatIsValid) {
  EXPECT_EQ(HelpOfKey("kv_dtype"),
            "Type of the KV cache; fp8 (e4m3) and int8 have a scale for each token and head: f32, "
            "f16, bf16, fp8, fp8_e4m3 (the same) or int8");
  EXPECT_EQ(HelpOfKey("max_sequences"), "Sequences that run at once; 1 to 1024");
  EXPECT_EQ(HelpOfKey("log_format"), "Form of log lines: text or json (one object per line)");
  EXPECT_EQ(HelpOfKey("stop"), "Text that ends the output (not part of it); may be repeated");
}

TEST(SettingsPage, IsThatOfTheDocs) {
  const std::string path = TALON_SOURCE_DIR "/docs/flags.md";
  if (std::getenv("TALON_WRITE_DOCS") != nullptr) {
    ASSERT_TRUE(WriteFile(path, SettingsPage()).ok());
  }
  const auto page = ReadFile(path);
  ASSERT_TRUE(page.ok()) << page.status().message();
  EXPECT_TRUE(*page == SettingsPage())
      << "docs/flags.md is not what the table of settings gives; write it anew:\n"
         "  TALON_WRITE_DOCS=1 build/src/setup/setup_test --gtest_filter=SettingsPage.*";
}

}  // namespace
}  // namespace talon
