// Block heads; their arithmetic is compared with plain Python in tests/cli_draft_test.py.
#include "model/heads/block_head.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "compute/test_device.h"
#include "model/heads/test_eagle.h"
#include "model/heads/test_heads.h"

namespace talon {
namespace {

class BlockHeads : public testing::Test {
 protected:
  BlockHeads() : backend_(NewTestBackend(2)) {
    WriteModel(target_dir_.path(), EagleTargetConfig(), DType::kF32, 11);
    target_ = Decoder::Load(target_dir_.path(), backend_.get(), {}).value();
  }
  Json Config(DraftKind kind) const { return TestHeadConfig(kind, target_->config()); }
  Result<std::unique_ptr<BlockHead>> Load(DraftKind kind, const Json& config) {
    WriteTestHead(head_dir_.path(), kind, config, target_->config(), 5);
    return BlockHead::Load(head_dir_.path(), *target_, backend_.get(), {});
  }
  // The message of a configuration with other options, nested ones by "dflash_config".
  std::string ErrorOf(const Json& more) const {
    Json config = Config(DraftKind::kDflash);
    config.merge_patch(more);
    return std::string(ParseBlockConfig(config, "c.json", DraftKind::kDflash, target_->config(), {})
                           .status()
                           .message());
  }

  TempDirectory target_dir_, head_dir_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> target_;
};

TEST_F(BlockHeads, AreToldApart) {
  for (const DraftKind kind : {DraftKind::kDflash, DraftKind::kJetspec, DraftKind::kDspark}) {
    const auto head = Load(kind, Config(kind));
    ASSERT_TRUE(head.ok()) << head.status().message();
    EXPECT_EQ(DraftKindOf(head_dir_.path()).value(), kind);
    const BlockConfig& config = (*head)->config();
    EXPECT_EQ(config.causal, kind == DraftKind::kJetspec);
    EXPECT_EQ((*head)->has_markov(), kind == DraftKind::kDspark);
    EXPECT_EQ(config.num_drafts(), 6);
    EXPECT_EQ(config.capture_layers, (std::vector<int>{2, 7})) << "outputs of layers 1 and 6";
  }
}

TEST_F(BlockHeads, CapturedLayersAreSpreadByDefault) {
  Json config = Config(DraftKind::kDflash);
  config["dflash_config"].erase("target_layer_ids");
  config["num_hidden_layers"] = 5;
  ModelConfig target = target_->config();
  target.num_layers = 36;
  config["num_target_layers"] = 36;
  const auto parsed = ParseBlockConfig(config, "c.json", DraftKind::kDflash, target, {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->capture_layers, (std::vector<int>{2, 10, 18, 26, 34}));
}

TEST_F(BlockHeads, WrongConfigsSayWhatDoesNotFit) {
  EXPECT_EQ(ErrorOf({{"vocab_size", 95}}), "c.json: vocab_size 95, the target has 96");
  EXPECT_EQ(ErrorOf({{"num_target_layers", 36}}),
            "c.json: made for a target of 36 layers, this one has 8");
  EXPECT_EQ(ErrorOf({{"target_hidden_size", 48}}),
            "c.json: made for a target of hidden_size 48, this one has 32");
  EXPECT_EQ(ErrorOf({{"block_size", 1}}), "c.json: block_size 1 drafts nothing");
  EXPECT_NE(ErrorOf({{"dflash_config", {{"mask_token_id", 96}}}}).find("mask_token_id: 96"),
            std::string::npos);
  EXPECT_EQ(ErrorOf({{"dflash_config", {{"target_layer_ids", {1, 8}}}}}),
            "c.json: captured layer 8, a target of 8 layers allows 0 to 7");
  EXPECT_EQ(ErrorOf({{"layer_types", {"full_attention", "sliding_attention"}}}),
            "c.json: layer type \"sliding_attention\" is unsupported in a block head");
  EXPECT_EQ(ErrorOf({{"dflash_config", {{"selector_rank", 256}}}}),
            "c.json: selector_rank (DFlash 2) is unsupported in a block head");
}

TEST_F(BlockHeads, MissingAndUnknownTensorsAreRefused) {
  const auto error_of = [&](DraftKind kind, DraftKind claimed) {
    WriteTestHead(head_dir_.path(), kind, Config(kind), target_->config(), 5);
    EXPECT_TRUE(WriteFile(head_dir_.path() + "/config.json", Config(claimed).dump()).ok());
    const auto head = BlockHead::Load(head_dir_.path(), *target_, backend_.get(), {});
    return std::string(head.status().message());
  };
  EXPECT_NE(error_of(DraftKind::kDflash, DraftKind::kDspark).find("not a DSpark head"),
            std::string::npos);
  EXPECT_NE(error_of(DraftKind::kDspark, DraftKind::kDflash).find("markov_head.markov_w1.weight"),
            std::string::npos);
  Json config = Config(DraftKind::kDflash);
  WriteTestHead(head_dir_.path(), DraftKind::kDflash, config, target_->config(), 5);
  config["num_hidden_layers"] = 1;
  EXPECT_TRUE(WriteFile(head_dir_.path() + "/config.json", config.dump()).ok());
  EXPECT_NE(std::string(
                BlockHead::Load(head_dir_.path(), *target_, backend_.get(), {}).status().message())
                .find("layers.1."),
            std::string::npos);
}

}  // namespace
}  // namespace talon
