// EAGLE-1 heads; their arithmetic is compared with plain Python in tests/cli_draft_test.py.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "compute/test_device.h"
#include "model/heads/eagle_head.h"
#include "model/heads/eagle_sequence.h"
#include "model/heads/test_eagle.h"
#include "model/heads/test_heads.h"
#include "model/heads/token_map.h"

namespace talon {
namespace {

// A target on disk, and an EAGLE head for it.
class Eagle1 : public testing::Test {
 protected:
  Eagle1() : backend_(NewTestBackend(2)) {
    WriteModel(target_dir_.path(), EagleTargetConfig(), DType::kF32, 11);
    target_ = Decoder::Load(target_dir_.path(), backend_.get(), {}).value();
    config_ = TestHeadConfig(DraftKind::kEagle, target_->config());
  }
  Result<std::unique_ptr<EagleHead>> Load(const EagleHead::Options& options = {}) {
    WriteTestHead(head_dir_.path(), DraftKind::kEagle, config_, target_->config(), 5);
    return EagleHead::Load(head_dir_.path(), *target_, backend_.get(), options);
  }
  std::string ErrorOf(const char* key, const Json& value) {
    config_[key] = value;
    const std::string message(Load().status().message());
    return message.substr(std::min(message.find(": ") + 2, message.size()));
  }
  std::string ErrorOfMap(const std::string& text) {
    const std::string path = head_dir_.path() + "/map.json";
    EXPECT_TRUE(WriteFile(path, text).ok());
    return std::string(ReadTokenMap(path, 96).status().message()).substr(path.size());
  }
  std::vector<float> LogitsOf(EagleHead* head) {
    auto sequence = EagleSequence::Create(head, backend_.get(), {.max_tokens = 32});
    const std::vector<int32_t> tokens = {5, 9, 2, 77, 31};
    const auto width = static_cast<size_t>(head->config().features_size());
    return sequence->Append(RandomFloats(tokens.size() * width, 3), tokens)->logits;
  }

  TempDirectory target_dir_, head_dir_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> target_;
  Json config_;
};

TEST_F(Eagle1, CapturesTheLastHiddenState) {
  const auto head = Load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_FALSE((*head)->config().eagle3);
  EXPECT_EQ((*head)->config().capture_layers, std::vector<int>{8});
  EXPECT_EQ((*head)->config().draft_vocab_size, 96);
}

TEST_F(Eagle1, FeaturesGetTheTargetsFinalNorm) {
  const auto head = std::move(Load()).value();
  const std::vector<float> features = RandomFloats(32, 7);
  auto in = NewScratch(backend_.get(), 1, 32);
  auto out = NewScratch(backend_.get(), 1, 32);
  auto expected = NewScratch(backend_.get(), 1, 32);
  backend_->CopyIn(in->all.data, features.data(), features.size() * sizeof(float));
  head->Fuse(in->all, out->all);
  backend_->layer_ops()->RmsNorm(in->all,
                                 static_cast<const float*>(target_->weights().final_norm.data()),
                                 target_->config().rms_norm_eps, expected->all);
  std::vector<float> got, want;
  CopyRows(backend_.get(), out->all, &got);
  CopyRows(backend_.get(), expected->all, &want);
  EXPECT_EQ(got, want);
}

TEST_F(Eagle1, FeaturesStayAsTheyAreWhereTheConfigSaysSo) {
  config_["feature_norm"] = false;
  const auto head = std::move(Load()).value();
  const std::vector<float> features = RandomFloats(64, 7);
  auto in = NewScratch(backend_.get(), 2, 32);
  auto out = NewScratch(backend_.get(), 2, 32);
  backend_->CopyIn(in->all.data, features.data(), features.size() * sizeof(float));
  head->Fuse(in->all, out->all);
  std::vector<float> got;
  CopyRows(backend_.get(), out->all, &got);
  EXPECT_EQ(got, features);
}

TEST_F(Eagle1, ATokenMapCutsTheLogits) {
  const std::vector<float> all = LogitsOf(Load().value().get());
  const std::string map = head_dir_.path() + "/map.json";
  ASSERT_TRUE(WriteFile(map, "[40, 3, 95,\n 7]").ok());
  const auto head = Load({.token_map = map, .target_path = target_dir_.path()});
  ASSERT_TRUE(head.ok()) << head.status().message();
  const std::vector<int32_t> ids = {3, 7, 40, 95};
  EXPECT_EQ((*head)->target_ids(), ids);
  const std::vector<float> cut = LogitsOf(head->get());
  ASSERT_EQ(cut.size(), all.size() / 96 * ids.size());
  for (size_t i = 0; i < cut.size(); ++i) {
    EXPECT_FLOAT_EQ(cut[i], all[i / ids.size() * 96 + static_cast<size_t>(ids[i % ids.size()])]);
  }
}

TEST_F(Eagle1, BadTokenMaps) {
  EXPECT_EQ(ErrorOfMap(""), ": no token ids in it");
  EXPECT_EQ(ErrorOfMap("1 2 96"), ": token id 96, the vocabulary has 96");
  EXPECT_EQ(ErrorOfMap("[1, -2]"), ": token id -2, the vocabulary has 96");
  EXPECT_EQ(ErrorOfMap("4 5 4"), ": token id 4 stands there twice");
  EXPECT_TRUE(ErrorOfMap("the").starts_with(": 'the' is not a token id"));
  EXPECT_NE(std::string(ReadTokenMap("hot.pt", 96).status().message()).find("PyTorch"),
            std::string::npos);
}

TEST_F(Eagle1, WrongConfigsSayWhatDoesNotFit) {
  EXPECT_EQ(ErrorOf("vocab_size", 95), "vocab_size 95, the target has 96");
  config_ = TestHeadConfig(DraftKind::kEagle, target_->config());
  EXPECT_EQ(ErrorOf("num_hidden_layers", 2), "num_hidden_layers 2, an EAGLE head has 1");
  config_ = TestHeadConfig(DraftKind::kEagle, target_->config());
  EXPECT_EQ(ErrorOf("bias", false), "tensor fc.bias is not accounted for by config.json (bias)");
  config_ = TestHeadConfig(DraftKind::kEagle, target_->config());
  EXPECT_NE(
      std::string(Load({.capture_layers = {1}}).status().message()).find("eagle3_capture_layers"),
      std::string::npos);
}

// ---- What EAGLE and EAGLE-3 share ----

TEST_F(Eagle1, AHeadThatNamesNoRopeHasTheTargets) {
  config_.erase("rope_theta");
  ModelConfig target = target_->config();
  target.rope = {.kind = RopeKind::kLinear, .theta = 77777, .factor = 3};
  const auto parsed = ParseEagle1Config(config_, "c.json", target);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->rope.kind, RopeKind::kLinear);
  EXPECT_EQ(parsed->rope.theta, 77777);
  config_["rope_theta"] = 10000.0;
  EXPECT_EQ(ParseEagle1Config(config_, "c.json", target)->rope.kind, RopeKind::kDefault);
}

TEST_F(Eagle1, CaptureIdsOfEagle3InAllSpellings) {
  const auto layers = [&](const Json& more) {
    Json config = MakeTestHead().config;
    config.update(more);
    const auto parsed = ParseEagle3Config(config, "c.json", target_->config(), {});
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return parsed.ok() ? parsed->capture_layers : std::vector<int>{};
  };
  const char* aux = "aux_hidden_state_layer_ids";
  const char* eagle_aux = "eagle_aux_hidden_state_layer_ids";
  EXPECT_EQ(layers({{eagle_aux, {1, 3, 6}}}), (std::vector<int>{1, 3, 6}));
  EXPECT_EQ(layers({{"eagle_config", {{eagle_aux, {1, 3, 6}}}}}), (std::vector<int>{2, 4, 7}));
  EXPECT_EQ(layers({{aux, {1, 3, 6}}}), (std::vector<int>{2, 4, 7}));
  EXPECT_EQ(layers({{"eagle_config", {{aux, {1, 3, 6}}}}}), (std::vector<int>{2, 4, 7}));
  EXPECT_EQ(layers({{aux, {1, 3, 6}}, {"speculators_model_type", "eagle3"}}),
            (std::vector<int>{1, 3, 6}));
  EXPECT_EQ(layers(Json::object()), (std::vector<int>{2, 4, 5}));
}

}  // namespace
}  // namespace talon
