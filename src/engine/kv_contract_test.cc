// The KV contract around a tree pass, on a real model: what the cache may look like before, during
// and after.
#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include "spec/plan.h"

namespace talon {
namespace {

class KvContractTest : public testing::Test {
 protected:
  void SetUp() override {
    static TestModel model("tests/data/goldens/llama3");
    model_ = &model;
    const ModelConfig& config = model.target->config();
    shape_ = {.num_layers = config.num_layers,
              .kv_heads = config.num_kv_heads,
              .head_dim = config.head_dim,
              .block_size = 8,
              .dtype = DType::kBF16,
              .num_blocks = 40,
              .staging_rows = 32};
    kv_ = KvCache::Create(model.backend.get(), shape_, &metrics_, {.audit = true}).value();
  }

  void Prefill(Sequence* sequence, int count) {
    Reservation reservation = kv_->Reserve(*sequence, count).value();
    PassBuilder builder;
    builder.AddPrompt(*sequence, reservation);
    ForwardOutput output;
    ASSERT_TRUE(model_->target->Forward(builder.plan(), kv_->view(), &output).ok());
    kv_->Advance(sequence, std::move(reservation), count, "prefill");
  }

  // The logits of every node, and staging filled; the caller commits and clears.
  std::vector<float> Verify(const Sequence& sequence, const TokenTree& tree) {
    PassBuilder builder;
    builder.AddTree(sequence, tree);
    EXPECT_TRUE(kv_->staging().Begin(tree.size()).ok());
    ForwardOutput output;
    EXPECT_TRUE(model_->target->Forward(builder.plan(), kv_->view(), &output).ok());
    kv_->staging().Report(output.stored_layers);
    std::vector<float> logits(static_cast<size_t>(output.logits.rows) * output.logits.cols);
    model_->backend->CopyOut(logits.data(), output.logits.data, logits.size() * sizeof(float));
    return logits;
  }

  std::vector<float> VerifyRoot(const Sequence& sequence) {
    std::vector<float> logits = Verify(sequence, TokenTree(sequence.tokens.back()));
    kv_->staging().Clear();
    return logits;
  }

  Sequence Prompt(int tokens) {
    std::mt19937 random(4);
    Sequence sequence{.id = 1, .tokens = RandomPrompt(random, tokens, 512)};
    Prefill(&sequence, tokens - 1);
    return sequence;
  }

  static TokenTree SomeTree(int32_t root) {
    TokenTree tree(root);
    for (const auto& [parent, token] :
         {std::pair{0, 10}, {0, 11}, {1, 12}, {2, 13}, {2, 14}, {4, 15}}) {
      tree.Add(parent, token, 1);
    }
    return tree;
  }

  TestModel* model_ = nullptr;
  Metrics metrics_;
  KvShape shape_;
  std::unique_ptr<KvCache> kv_;
};

TEST_F(KvContractTest, VerifyIsReadOnly) {
  const Sequence sequence = Prompt(21);
  const Sequence before = sequence;
  const uint64_t hash = kv_->audit().ContentHash(sequence);
  const int free_blocks = kv_->pool().free_blocks();
  Verify(sequence, SomeTree(sequence.tokens.back()));
  EXPECT_EQ(kv_->audit().ContentHash(sequence), hash);
  EXPECT_EQ(kv_->pool().free_blocks(), free_blocks);
  EXPECT_EQ(sequence.tokens, before.tokens);
  EXPECT_EQ(sequence.blocks, before.blocks);
  EXPECT_EQ(sequence.committed_len, before.committed_len);
  EXPECT_TRUE(kv_->audit().Check(sequence).ok());
}

// Every layer of the model reports every pass, also where a device replays what it has captured;
// rows count once, operations once for each layer.
TEST_F(KvContractTest, EachLayerReportsEachPass) {
  const Sequence sequence = Prompt(21);
  const TokenTree tree = SomeTree(sequence.tokens.back());
  for (int pass = 1; pass <= 4; ++pass) {
    Verify(sequence, tree);
    EXPECT_TRUE(kv_->staging().CheckStaged(std::vector<int32_t>{0, tree.size() - 1}).ok());
    kv_->staging().Clear();
    EXPECT_EQ(metrics_.Total(Counter::kNworStagedTokens), pass * tree.size());
    EXPECT_EQ(metrics_.Total(Counter::kNworStageOperations),
              pass * tree.size() * shape_.num_layers);
    EXPECT_EQ(metrics_.Get(Counter::kKvBytesStaged, "pass"),
              static_cast<int64_t>(pass * tree.size() * shape_.BytesPerToken()));
  }
}

TEST_F(KvContractTest, PostStepMatchesPath) {
  Sequence sequence = Prompt(21);
  Verify(sequence, SomeTree(sequence.tokens.back()));
  ASSERT_TRUE(kv_->Commit(&sequence, std::vector<int32_t>{0, 2, 4, 6}).ok());
  kv_->staging().Clear();
  for (const int32_t token : {11, 13, 15, 99}) sequence.tokens.push_back(token);
  EXPECT_EQ(sequence.committed_len, 24);
  EXPECT_EQ(sequence.tokens.size(), 25u);
  EXPECT_EQ(sequence.blocks.size(), 3u);
  const Sequence* all[] = {&sequence};
  EXPECT_TRUE(kv_->CheckIntegrity(all).ok());
  EXPECT_TRUE(kv_->audit().Check(sequence).ok());
}

// After a tree step the cache holds the same bits as after plain decoding of the same tokens.
TEST_F(KvContractTest, NextStepIndistinguishable) {
  Sequence by_tree = Prompt(21);
  Verify(by_tree, SomeTree(by_tree.tokens.back()));
  ASSERT_TRUE(kv_->Commit(&by_tree, std::vector<int32_t>{0, 2, 4, 6}).ok());
  kv_->staging().Clear();
  for (const int32_t token : {11, 13, 15, 99}) by_tree.tokens.push_back(token);

  Sequence plain = Prompt(21);
  for (const int32_t token : {11, 13, 15, 99}) {
    Verify(plain, TokenTree(plain.tokens.back()));
    ASSERT_TRUE(kv_->Commit(&plain, std::vector<int32_t>{0}).ok());
    kv_->staging().Clear();
    plain.tokens.push_back(token);
  }
  EXPECT_EQ(kv_->audit().ContentHash(by_tree), kv_->audit().ContentHash(plain));
  EXPECT_EQ(VerifyRoot(by_tree), VerifyRoot(plain));
}

TEST_F(KvContractTest, RewindThenDecode) {
  Sequence sequence = Prompt(40);
  const std::vector<int32_t> tokens = sequence.tokens;
  for (int length = 38; length >= 0; --length) {
    ASSERT_TRUE(kv_->Rewind(&sequence, length).ok());
    ASSERT_EQ(static_cast<int>(sequence.tokens.size()), length + 1);
    Sequence fresh{.id = 2,
                   .tokens = std::vector<int32_t>(tokens.begin(), tokens.begin() + length + 1)};
    if (length > 0) Prefill(&fresh, length);
    EXPECT_EQ(VerifyRoot(sequence), VerifyRoot(fresh)) << "length " << length;
    kv_->Free(&fresh);
  }
}

}  // namespace
}  // namespace talon
