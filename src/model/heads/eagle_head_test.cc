#include "model/heads/eagle_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "compute/reference/reference_backend.h"
#include "compute/test_device.h"
#include "model/heads/eagle_sequence.h"
#include "model/heads/test_eagle.h"

namespace talon {
namespace {

constexpr int kMaxTokens = 64;
constexpr double kTolerance = 2e-4;  // values are of the order of 1, sums of about 100 terms

std::vector<int32_t> HeadTokens(size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>((i * 37 + 5) % 96);
  return tokens;
}

void ExpectNear(std::span<const float> got, const std::vector<double>& expected,
                const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], kTolerance) << what << " element " << i;
  }
}

// Row `row` of a result against the reference's.
void ExpectRow(const EagleSequence::Rows& got, size_t row, const EagleReference::Row& expected) {
  const auto part = [row](const std::vector<float>& all, size_t cols) {
    return std::span(all).subspan(row * cols, cols);
  };
  const std::string what = fmt::format("row {} ", row);
  ExpectNear(part(got.logits, expected.logits.size()), expected.logits, what + "logits");
  ExpectNear(part(got.hidden, expected.hidden.size()), expected.hidden, what + "hidden");
  ExpectNear(part(got.next, expected.next.size()), expected.next, what + "next");
}

// A prompt, then a tree on its last row's output, against the slow reference.
void ExpectEqualsReference(EagleTestBed* bed, const TestHead& test_head) {
  auto head = bed->Load(test_head);
  ASSERT_TRUE(head.ok()) << head.status().message();
  const EagleConfig& config = (*head)->config();
  const EagleReference reference(test_head, config, bed->target()->config());
  auto sequence =
      EagleSequence::Create(head->get(), bed->backend(), {.max_tokens = kMaxTokens, .max_tree = 8});
  ASSERT_TRUE(sequence.ok()) << sequence.status().message();

  const std::vector<int32_t> tokens = HeadTokens(20);
  const auto width = static_cast<size_t>(config.features_size());
  const std::vector<float> features = RandomFloats(tokens.size() * width, 3);
  const auto got = sequence->Append(features, tokens);
  ASSERT_TRUE(got.ok()) << got.status().message();
  std::vector<std::unique_ptr<EagleReference::Row>> rows;
  std::vector<const EagleReference::Row*> seen;
  for (size_t i = 0; i < tokens.size(); ++i) {
    rows.push_back(std::make_unique<EagleReference::Row>(
        reference.Run(reference.Fuse(std::span(features).subspan(i * width, width)), tokens[i],
                      static_cast<int>(i), seen)));
    seen.push_back(rows.back().get());
    ExpectRow(*got, i, *rows.back());
  }

  const std::vector<int32_t> nodes = {7, 8, 9, 10};
  const std::vector<int32_t> parents = {-1, -1, 0, 1};
  const auto hidden = static_cast<size_t>(config.hidden_size);
  const std::vector<float> inputs = RandomFloats(nodes.size() * hidden, 4);
  const auto tree = sequence->Tree(inputs, nodes, parents);
  ASSERT_TRUE(tree.ok()) << tree.status().message();
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<const EagleReference::Row*> keys(seen.begin(), seen.begin() + 20);
    if (parents[i] >= 0) keys.push_back(rows[20 + static_cast<size_t>(parents[i])].get());
    const auto input = inputs.begin() + static_cast<int64_t>(i * hidden);
    rows.push_back(std::make_unique<EagleReference::Row>(reference.Run(
        {input, input + static_cast<int64_t>(hidden)}, nodes[i], parents[i] < 0 ? 20 : 21, keys)));
    ExpectRow(*tree, i, *rows.back());
  }
}

struct OptionCase {
  const char* name;
  Json options;
};

class EagleOptions : public testing::TestWithParam<OptionCase> {};

TEST_P(EagleOptions, ForwardEqualsReference) {
  Json config = MakeTestHead().config;
  config.update(GetParam().options);
  const TestHead head = MakeTestHead(config);
  for (const char* backend : {"reference", "cpu"}) {
    SCOPED_TRACE(backend);
    EagleTestBed bed(backend == std::string("cpu") ? NewTestBackend(kCpuThreads)
                                                   : NewReferenceBackend());
    ExpectEqualsReference(&bed, head);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EagleOptions,
    testing::Values(
        OptionCase{"Plain", Json::object()},
        OptionCase{"NormBeforeResidual", {{"norm_before_residual", true}}},
        OptionCase{"NormBeforeFc", {{"norm_before_fc", true}}},
        OptionCase{"FcNorm", {{"fc_norm", true}}},
        OptionCase{"NormOutput", {{"norm_output", true}}},
        OptionCase{"LogitScale", {{"logit_scale", 0.25}}}, OptionCase{"FcBias", {{"bias", true}}},
        OptionCase{"AttentionBias", {{"attention_bias", true}}},
        OptionCase{"MlpBias", {{"mlp_bias", true}}},
        OptionCase{"WideHeads", {{"head_dim", 16}, {"num_key_value_heads", 4}}},
        OptionCase{"OtherHiddenSize", {{"hidden_size", 48}, {"target_hidden_size", 32}}},
        OptionCase{"LinearRope", {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}},
        OptionCase{"All",
                   {{"norm_before_residual", true},
                    {"norm_before_fc", true},
                    {"fc_norm", true},
                    {"norm_output", true},
                    {"logit_scale", 2.5},
                    {"bias", true},
                    {"attention_bias", true},
                    {"mlp_bias", true},
                    {"hidden_size", 48},
                    {"head_dim", 8},
                    {"target_hidden_size", 32}}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Eagle3, OwnEmbeddingsAndSharedHead) {
  EagleTestBed bed(NewTestBackend(kCpuThreads));
  TestHead own = MakeTestHead();
  own.Add("embed_tokens.weight", {96, 32});
  ExpectEqualsReference(&bed, own);

  Json config = MakeTestHead().config;
  config["draft_vocab_size"] = 96;
  TestHead shared = MakeTestHead(config);
  shared.Remove("lm_head.weight");
  shared.Remove("d2t");
  ExpectEqualsReference(&bed, shared);
}

// What the tests below share: one head, one prompt and its rows.
class Eagle3Passes : public testing::Test {
 protected:
  static constexpr int kRows = 24;

  Eagle3Passes() : bed_(NewTestBackend(kCpuThreads)), tokens_(HeadTokens(kRows)) {
    head_ = LoadHead({.max_rows = kRows, .max_output_rows = kRows});
    features_ = RandomFloats(kRows * static_cast<size_t>(head_->config().features_size()), 5);
    auto scratch = NewScratch(bed_.backend(), kRows, head_->config().features_size());
    auto inputs = NewScratch(bed_.backend(), kRows, head_->config().hidden_size);
    for (int row = 0; row < kRows; ++row) {
      const auto width = static_cast<size_t>(head_->config().features_size());
      bed_.backend()->CopyIn(scratch->all.Rows(row, 1).data,
                             features_.data() + static_cast<size_t>(row) * width,
                             width * sizeof(float));
    }
    inputs_ = std::move(*inputs);
    head_->Fuse(scratch->all, inputs_.all);
  }

  std::unique_ptr<EagleHead> LoadHead(const EagleHead::Options& options) {
    auto head = bed_.Load(MakeTestHead(), options);
    TALON_CHECK(head.ok(), "{}", head.status().message());
    return std::move(*head);
  }
  PrivateKv NewKv() {
    auto kv = PrivateKv::Create(bed_.backend(), head_->kv_shape(),
                                {.max_tokens = kMaxTokens, .max_tree = 1});
    TALON_CHECK(kv.ok());
    return std::move(*kv);
  }
  EagleSequence::Rows Append(EagleHead* head) {
    auto sequence = EagleSequence::Create(head, bed_.backend(), {.max_tokens = kMaxTokens});
    auto rows = sequence->Append(features_, tokens_);
    TALON_CHECK(rows.ok(), "{}", rows.status().message());
    return std::move(*rows);
  }

  EagleTestBed bed_;
  std::vector<int32_t> tokens_;
  std::vector<float> features_;
  std::unique_ptr<EagleHead> head_;
  Scratch inputs_;  // fused features
};

TEST_F(Eagle3Passes, ChunkedPrefillEqualsWholePrefill) {
  const auto chunked = LoadHead({.max_rows = 7, .max_output_rows = 7});
  const EagleSequence::Rows whole = Append(head_.get());
  const EagleSequence::Rows parts = Append(chunked.get());
  EXPECT_EQ(whole.logits, parts.logits);
  EXPECT_EQ(whole.next, parts.next);
}

TEST_F(Eagle3Passes, OutputRowsSubsetEqualsAllRows) {
  const EagleSequence::Rows whole = Append(head_.get());
  const PrivateKv kv = NewKv();
  PassPlan plan = kv.PromptPlan(tokens_, 0);
  plan.output_rows = {3, 11, kRows - 1};
  PassPlan attend = plan;
  for (auto* array : {&attend.tokens, &attend.positions, &attend.slots, &attend.prefix_len}) {
    *array = {(*array)[3], (*array)[11], (*array)[kRows - 1]};
  }
  attend.feature_rows.clear();
  attend.sequence_rows = {0, 3};
  attend.output_rows = {0, 1, 2};
  attend.ancestors.resize(3);
  EagleOutput output;
  const Status status = head_->Forward(plan, attend, kv.View(), inputs_.all, &output);
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<float> logits;
  std::vector<float> next;
  CopyRows(bed_.backend(), output.logits, &logits);
  CopyRows(bed_.backend(), output.next, &next);
  const size_t vocab = 40;
  const size_t hidden = 32;
  for (size_t i = 0; i < 3; ++i) {
    const auto row = static_cast<size_t>(plan.output_rows[i]);
    for (size_t j = 0; j < vocab; ++j) {
      EXPECT_EQ(logits[i * vocab + j], whole.logits[row * vocab + j]);
    }
    for (size_t j = 0; j < hidden; ++j) {
      EXPECT_EQ(next[i * hidden + j], whole.next[row * hidden + j]);
    }
  }
}

TEST_F(Eagle3Passes, KeysWithoutOutputsServeLaterRows) {
  const EagleSequence::Rows whole = Append(head_.get());
  PrivateKv kv = NewKv();
  PassPlan plan = kv.PromptPlan(std::span(tokens_).first(kRows - 1), kRows);
  EagleOutput output;
  ASSERT_TRUE(head_->Forward(plan, {}, kv.View(), inputs_.Rows(kRows - 1), &output).ok());
  EXPECT_EQ(output.logits.rows, 0);
  kv.Advance(kRows - 1);
  plan = kv.PromptPlan(std::span(tokens_).last(1), 0);
  ASSERT_TRUE(head_->Forward(plan, plan, kv.View(), inputs_.all.Rows(kRows - 1, 1), &output).ok());
  std::vector<float> logits;
  CopyRows(bed_.backend(), output.logits, &logits);
  EXPECT_EQ(logits, std::vector<float>(whole.logits.end() - 40, whole.logits.end()));
}

TEST_F(Eagle3Passes, BadPlansAreRefused) {
  const PrivateKv kv = NewKv();
  const PassPlan good = kv.PromptPlan(tokens_, 0);
  EagleOutput output;
  const auto message = [&](const PassPlan& plan, const PassPlan& attend, const MatrixView& inputs) {
    return head_->Forward(plan, attend, kv.View(), inputs, &output).message();
  };
  EXPECT_EQ(message(good, {}, inputs_.all), "eagle3: 0 rows attend, 24 outputs wanted");
  EXPECT_EQ(message(good, good, inputs_.Rows(3)), "eagle3: inputs [3, 32], expected [24, 32]");
  PassPlan bad = good;
  bad.tokens[4] = 96;
  EXPECT_EQ(message(bad, bad, inputs_.all), "eagle3: row 4 has token 96, vocabulary 96");
  bad = good;
  bad.slots[2] = 64;
  EXPECT_EQ(message(bad, bad, inputs_.all), "eagle3: row 2 has slot 64, the cache has 64");
  EXPECT_EQ(message(good, bad, inputs_.all), "eagle3: row 2 has slot 64, the cache has 64");
  KvView other = kv.View();
  other.shape.kv_heads = 4;
  EXPECT_EQ(head_->Forward(good, good, other, inputs_.all, &output).message(),
            "eagle3: cache of 1 layers x 4 heads x 8, the model has 1 x 2 x 8");
}

TEST(Eagle3, PositionsPastDraftLimit) {
  EagleTestBed bed(NewTestBackend(kCpuThreads));
  TestHead short_head = MakeTestHead();
  short_head.config["max_position_embeddings"] = 8;
  ExpectEqualsReference(&bed, short_head);  // 22 positions

  // A limit that is not reached changes nothing.
  auto limited = bed.Load(short_head);
  auto free = bed.Load(MakeTestHead());
  ASSERT_TRUE(limited.ok() && free.ok());
  const std::vector<int32_t> tokens = HeadTokens(20);
  const std::vector<float> features = RandomFloats(tokens.size() * 96, 3);
  std::vector<std::vector<float>> logits;
  for (auto* head : {limited->get(), free->get()}) {
    auto sequence = EagleSequence::Create(head, bed.backend(), {.max_tokens = kMaxTokens});
    const auto rows = sequence->Append(features, tokens);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    logits.push_back(rows->logits);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(Eagle3, OneWarningPastDraftLimit) {
  EagleTestBed bed(NewTestBackend(1));
  TestHead head = MakeTestHead();
  head.config["max_position_embeddings"] = 8;
  const auto warnings = [&] {
    testing::internal::CaptureStderr();
    const bool ok = bed.Load(head).ok();
    const std::string lines = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(ok);
    return lines;
  };
  const std::string warning = warnings();
  EXPECT_NE(warning.find("8 positions, sequences may have 256"), std::string::npos) << warning;
  EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
  head.config["rope_scaling"] = {{"type", "linear"}, {"factor", 32.0}};
  EXPECT_EQ(warnings(), "") << "the head knows of longer contexts";
}

// Dynamic scaling depends on the engine's length, which is fixed at load.
TEST(Eagle3, DynamicRopeUsesTheEnginesLength) {
  EagleTestBed bed(NewTestBackend(kCpuThreads));
  TestHead head = MakeTestHead();
  head.config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  const std::vector<int32_t> tokens = HeadTokens(20);
  const std::vector<float> features = RandomFloats(tokens.size() * 96, 3);
  std::vector<std::vector<float>> logits;
  for (const int length : {128, 256, 4096}) {
    auto loaded = bed.Load(head, {.max_length = length});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    auto sequence = EagleSequence::Create(loaded->get(), bed.backend(), {.max_tokens = kMaxTokens});
    logits.push_back(sequence->Append(features, tokens)->logits);
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_NE(logits[0], logits[2]);
}

}  // namespace
}  // namespace talon
