#include "setup/generation_defaults.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "model/sampling/sampling_params.h"
#include "setup/settings.h"

namespace talon {
namespace {

const char* const kFile =
    R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "eos_token_id": 1})";

// A model directory with nothing but this generation_config.json.
class GenerationDefaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.model = ::testing::TempDir() + "/generation_defaults";
    std::filesystem::create_directories(config_.model);
    Write(kFile);
  }
  void TearDown() override { std::filesystem::remove_all(config_.model); }
  void Write(const std::string& text) const {
    std::ofstream(config_.model + "/generation_config.json") << text;
  }
  Status Apply(std::vector<std::string_view> flags) {
    return ApplyGenerationDefaults(
        [&](std::string_view flag) { return std::ranges::find(flags, flag) != flags.end(); },
        &config_);
  }

  Config config_;
};

TEST_F(GenerationDefaultsTest, AreUsedUnlessToldOtherwise) {
  const auto used = UsedGenerationDefaults(config_);
  ASSERT_TRUE(used.ok()) << used.status().message();
  SamplingParams params;
  used->Apply(&params);
  EXPECT_EQ(params.temperature, 0.6f);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.top_p, 0.95f);
  EXPECT_EQ(params.min_p, 0.1f);
  EXPECT_EQ(params.repetition_penalty, 1.0f);
  EXPECT_EQ(used->ToString(), "temperature 0.6, top_k 20, top_p 0.95, min_p 0.1");
  config_.generation_config = "none";
  const auto ignored = UsedGenerationDefaults(config_);
  ASSERT_TRUE(ignored.ok());
  EXPECT_TRUE(ignored->empty());
}

TEST_F(GenerationDefaultsTest, FlagsAndSettingsComeFirstEvenIfTheyAreTheDefaults) {
  ASSERT_TRUE(LoadConfigText("top_p: 1\nmin_p: 0.5\n", "test.yaml", &config_).ok());
  ASSERT_TRUE(Apply({"--temperature"}).ok());
  EXPECT_EQ(config_.sampling.temperature, 0.0f);
  EXPECT_EQ(config_.sampling.top_k, 20);
  EXPECT_EQ(config_.sampling.top_p, 1.0f);
  EXPECT_EQ(config_.sampling.min_p, 0.5f);
}

TEST_F(GenerationDefaultsTest, BadValuesMatterOnlyWhereTheyAreUsed) {
  for (const char* bad : {R"({"temperature": -1})", R"({"top_p": "x"})", "[]", "{"}) {
    Write(bad);
    config_.generation_config = "none";
    EXPECT_TRUE(Apply({}).ok()) << bad;
    config_.generation_config = "auto";
    EXPECT_FALSE(Apply({}).ok()) << bad;
  }
  Write(R"({"top_k": -1, "temperature": null})");
  ASSERT_TRUE(Apply({}).ok());
  EXPECT_EQ(config_.sampling.top_k, 0);
}

}  // namespace
}  // namespace talon
