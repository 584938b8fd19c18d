// Passes over a partial view on a real model: with lists that leave nothing out, tails give the
// bits of full passes; scores ride along without changing them.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "compute/reference/reference_backend.h"
#include "compute/test_device.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "spec/plan.h"

namespace talon {
namespace {

constexpr int kBlock = 8;

// A model, a cache, and one sequence whose prompt is committed but for its last token.
struct Bench {
  Bench(std::unique_ptr<Backend> chosen, int prompt, WeightFormat weights)
      : backend(std::move(chosen)) {
    decoder = Decoder::Load(TALON_SOURCE_DIR "/tests/data/goldens/llama3", backend.get(),
                            {.weights = weights, .max_rows = 128, .max_output_rows = 64})
                  .value();
    const ModelConfig& config = decoder->config();
    const KvShape shape{.num_layers = config.num_layers,
                        .kv_heads = config.num_kv_heads,
                        .head_dim = config.head_dim,
                        .block_size = kBlock,
                        .dtype = DType::kF32,
                        .num_blocks = 40,
                        .staging_rows = 64,
                        .key_summaries = true};
    kv = KvCache::Create(backend.get(), shape, &metrics, {.tail_regions = 1, .tail_rows = 64})
             .value();
    EXPECT_TRUE(decoder->ReserveScores(40).ok());
    std::mt19937 random(4);
    for (int i = 0; i < prompt; ++i) {
      sequence.tokens.push_back(static_cast<int32_t>(random() % config.vocab_size));
    }
    Reservation reservation = kv->Reserve(sequence, prompt - 1).value();
    PassBuilder builder;
    builder.AddPrompt(sequence, reservation);
    ForwardOutput output;
    EXPECT_TRUE(decoder->Forward(builder.plan(), kv->view(), &output).ok());
    kv->Advance(&sequence, std::move(reservation), prompt - 1, "prefill");
    EXPECT_TRUE(kv->staging().OpenTail(&sequence).ok());
  }

  // Every (layer, kv head) sees all blocks.
  std::vector<int32_t> AllLists() const {
    const int lists = decoder->config().num_layers * decoder->config().num_kv_heads;
    std::vector<int32_t> ids;
    for (int i = 0; i < lists; ++i) {
      ids.insert(ids.end(), sequence.blocks.begin(), sequence.blocks.end());
    }
    return ids;
  }

  ForwardOutput Run(const PassBuilder& builder) {
    ForwardOutput output;
    EXPECT_TRUE(kv->staging().Begin(builder.staged()).ok());
    const Status status = decoder->Forward(builder.plan(), kv->view(), &output);
    EXPECT_TRUE(status.ok()) << status.message();
    kv->staging().Report(output.stored_layers);
    return output;
  }

  std::vector<float> Read(const MatrixView& matrix) const {
    std::vector<float> values(static_cast<size_t>(matrix.rows) * matrix.cols);
    for (int r = 0; r < matrix.rows; ++r) {
      backend->CopyOut(values.data() + static_cast<int64_t>(r) * matrix.cols,
                       matrix.data + r * matrix.stride, matrix.cols * sizeof(float));
    }
    return values;
  }

  std::unique_ptr<Backend> backend;
  Metrics metrics;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<KvCache> kv;
  Sequence sequence{.id = 1};
};

TokenTree SomeTree(int32_t root) {
  TokenTree tree(root);
  for (const auto& [parent, token] : {std::pair{0, 10}, {0, 11}, {1, 12}, {2, 13}, {2, 14}}) {
    tree.Add(parent, token, 1);
  }
  return tree;
}

// The trunk of provisional tokens with the new tree under it.
TokenTree TrunkAndTree(const Sequence& sequence, const TokenTree& tree) {
  TokenTree whole(sequence.tokens[sequence.committed_len]);
  for (int i = 1; i < sequence.tail_len; ++i) {
    whole.Add(i - 1, sequence.tokens[sequence.committed_len + i], 1);
  }
  const int trunk = sequence.tail_len;
  for (int i = 0; i < tree.size(); ++i) {
    whole.Add(trunk + tree.parents[i], tree.tokens[i], 1);
  }
  return whole;
}

TEST(PartialPass, TailsGiveTheBitsOfTheFullPass) {
  Bench bench(NewTestBackend(2), 61, WeightFormat::kAsStored);
  Sequence& sequence = bench.sequence;
  const std::vector<int32_t> lists = bench.AllLists();
  const PartialView view{.block_ids = lists,
                         .num_lists = static_cast<int>(lists.size() / sequence.blocks.size()),
                         .tokens = sequence.committed_len};
  PassBuilder builder;
  for (int step = 0; step < 12; ++step) {
    const TokenTree tree = SomeTree(sequence.tokens.back());
    builder.Reset();
    builder.AddPartialTree(sequence, tree, view);
    const std::vector<float> partial = bench.Read(bench.Run(builder).logits);
    // Nodes 0, 2 and 4 are accepted; the next root is made up.
    ASSERT_TRUE(bench.kv->AppendTail(&sequence, std::vector<int32_t>{0, 2, 4}).ok());
    bench.kv->staging().Clear();
    if (sequence.tail_len > 3) {  // the trunk needs a first node
      Sequence before = sequence;
      before.tail_len -= 3;
      builder.Reset();
      builder.AddTree(sequence, TrunkAndTree(before, tree), {}, before.tail_len);
      EXPECT_EQ(bench.Read(bench.Run(builder).logits), partial) << "step " << step;
      bench.kv->staging().Clear();
    }
    for (const int32_t token : {11, 13, 20 + step}) sequence.tokens.push_back(token);
  }
  EXPECT_EQ(sequence.tail_len, 36);
  EXPECT_EQ(sequence.tokens.size(), 60u + 36 + 1);
  EXPECT_TRUE(bench.kv->CheckIntegrity(std::vector<const Sequence*>{&sequence}).ok());
}

TEST(PartialPass, LeavingBlocksOutChangesLogits) {
  Bench bench(NewTestBackend(1), 61, WeightFormat::kAsStored);
  const std::vector<int32_t>& blocks = bench.sequence.blocks;
  std::vector<int32_t> lists = bench.AllLists();
  const auto logits = [&](int tokens) {
    PassBuilder builder;
    const int num_lists = bench.decoder->config().num_layers * bench.decoder->config().num_kv_heads;
    builder.AddPartialTree(bench.sequence, TokenTree(5),
                           {.block_ids = lists, .num_lists = num_lists, .tokens = tokens});
    const std::vector<float> read = bench.Read(bench.Run(builder).logits);
    bench.kv->staging().Clear();
    return read;
  };
  const std::vector<float> all = logits(60);
  std::erase(lists, blocks[3]);
  EXPECT_NE(logits(60 - kBlock), all);
}

TEST(PartialPass, ScoresOfBothBackendsAgreeAndChangeNoLogits) {
  std::vector<std::vector<float>> scores;
  for (const bool cpu : {false, true}) {
    Bench bench(cpu ? NewTestBackend(2) : NewReferenceBackend(), 61, WeightFormat::kF32);
    const ModelConfig& config = bench.decoder->config();
    const TokenTree tree = SomeTree(5);
    PassBuilder builder;
    builder.AddTree(bench.sequence, tree);
    const std::vector<float> plain = bench.Read(bench.Run(builder).logits);
    bench.kv->staging().Clear();
    const int blocks = bench.sequence.committed_len / kBlock;
    builder.RequestScores(0, tree.size(), blocks, {});
    const ForwardOutput output = bench.Run(builder);
    EXPECT_EQ(bench.Read(output.logits), plain);
    ASSERT_EQ(output.scores.rows, config.num_layers * config.num_kv_heads);
    ASSERT_EQ(output.scores.cols, blocks);
    scores.push_back(bench.Read(output.scores));
  }
  for (size_t i = 0; i < scores[0].size(); ++i) {
    EXPECT_TRUE(std::isfinite(scores[0][i]));
    EXPECT_NE(scores[0][i], 0) << "never written";
    EXPECT_NEAR(scores[0][i], scores[1][i], 1e-3 * std::abs(scores[0][i]) + 1e-4) << i;
  }
}

TEST(PartialPass, ScoresNeedRoomAndSummaries) {
  Bench bench(NewTestBackend(1), 61, WeightFormat::kAsStored);
  PassBuilder builder;
  builder.AddTree(bench.sequence, TokenTree(5));
  builder.RequestScores(0, 1, 41, {});
  ForwardOutput output;
  EXPECT_EQ(bench.decoder->Forward(builder.plan(), bench.kv->view(), &output).message(),
            "decoder: scores of 41 blocks wanted, limit 40");
  KvView view = bench.kv->view();
  view.shape.key_summaries = false;
  EXPECT_EQ(bench.decoder->Forward(builder.plan(), view, &output).message(),
            "decoder: scores wanted, no key summaries");
}

}  // namespace
}  // namespace talon
