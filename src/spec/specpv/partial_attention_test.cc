// A partial pass reads what its lists name: attention over them equals attention over the chosen
// keys gathered by position, for every layer and kv head.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/math.h"
#include "compute/backend.h"
#include "compute/reference/reference_backend.h"
#include "compute/test_device.h"
#include "spec/specpv/selection.h"

namespace talon {
namespace {

constexpr int kLayers = 2;
constexpr int kKvHeads = 2;
constexpr int kGroup = 2;
constexpr int kDim = 16;
constexpr int kBlock = 16;
constexpr int kLength = 20 * kBlock + 5;
constexpr int kPoolBlocks = 32;
constexpr int kRowFloats = kKvHeads * kDim;
constexpr BlockBudget kBudget{.sink = 1, .retrieval = 4, .window = 2};

std::vector<float> RandomFloats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// One layer's K and V of a sequence, by position; the last row is the root's, which is staged.
struct LayerTokens {
  std::vector<float> k, v;  // [kLength + 1][kKvHeads][kDim]
};

class PartialAttentionTest : public testing::Test {
 protected:
  PartialAttentionTest() : random_(41), blocks_(kPoolBlocks) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::shuffle(blocks_.begin(), blocks_.end(), random_);
    blocks_.resize(CeilDiv(kLength, kBlock));
    for (LayerTokens& tokens : tokens_) {
      tokens.k = RandomFloats((kLength + 1) * kRowFloats, random_);
      tokens.v = RandomFloats((kLength + 1) * kRowFloats, random_);
    }
    query_ = RandomFloats(kRowFloats * kGroup, random_);
    const int full = kLength / kBlock;
    scores_ = RandomFloats(static_cast<size_t>(kLayers) * kKvHeads * full, random_);
    auto selection = SelectBlocks({.values = scores_,
                                   .layers = kLayers,
                                   .kv_heads = kKvHeads,
                                   .stride = full,
                                   .end_block = full},
                                  kBudget, full);
    selection_ = std::move(selection).value();
  }

  // The positions a partial row sees, without the help of lists: the root comes last.
  std::vector<int> VisiblePositions(int layer, int head) const {
    std::vector<int> positions;
    const int full = kLength / kBlock;
    const auto chosen = selection_.List(layer, head);
    for (int position = 0; position <= kLength; ++position) {
      const int block = position / kBlock;
      if (block < kBudget.sink || block >= full - kBudget.window ||
          std::find(chosen.begin(), chosen.end(), block) != chosen.end()) {
        positions.push_back(position);
      }
    }
    return positions;
  }

  // softmax(scale q k^T) v of one query head in float64.
  std::vector<double> Expected(int layer, int query_head, float scale) const {
    const LayerTokens& tokens = tokens_[layer];
    const int head = query_head / kGroup;
    std::vector<double> out(kDim);
    double total = 0;
    for (const int position : VisiblePositions(layer, head)) {
      const size_t at = static_cast<size_t>(position) * kRowFloats + head * kDim;
      double product = 0;
      for (int d = 0; d < kDim; ++d) {
        product += static_cast<double>(query_[query_head * kDim + d]) * tokens.k[at + d];
      }
      const double weight = std::exp(scale * product);
      total += weight;
      for (int d = 0; d < kDim; ++d) out[d] += weight * tokens.v[at + d];
    }
    for (double& value : out) value /= total;
    return out;
  }

  PassPlan RootPlan() const {
    const PartialLists lists = MakePartialLists(selection_, blocks_, kLength, kBlock);
    PassPlan plan{.tokens = {0},
                  .positions = {kLength},
                  .slots = {-1},
                  .prefix_len = {lists.visible_tokens},
                  .sequence_rows = {0, 1},
                  .block_offsets = {0},
                  .block_ids = lists.block_ids,
                  .sequence_lists = {0, kLayers * kKvHeads},
                  .ancestors = {1}};
    for (int list = 1; list <= kLayers * kKvHeads; ++list) {
      plan.block_offsets.push_back(list * lists.list_blocks);
    }
    return plan;
  }

  // Tokens in their slots, all else NaN.
  std::vector<float> BlockImage(const std::vector<float>& tokens) const {
    std::vector<float> image(static_cast<size_t>(kPoolBlocks) * kBlock * kRowFloats, NAN);
    for (int position = 0; position < kLength; ++position) {
      for (int head = 0; head < kKvHeads; ++head) {
        const size_t tile = static_cast<size_t>(blocks_[position / kBlock]) * kKvHeads + head;
        std::copy_n(&tokens[position * kRowFloats + head * kDim], kDim,
                    &image[(tile * kBlock + position % kBlock) * kDim]);
      }
    }
    return image;
  }

  void CheckBackend(Backend& backend) {
    const KvShape shape{.num_layers = kLayers,
                        .kv_heads = kKvHeads,
                        .head_dim = kDim,
                        .block_size = kBlock,
                        .num_blocks = kPoolBlocks,
                        .staging_rows = 1};
    std::vector<Buffer> buffers;
    const auto upload = [&](const std::vector<float>& values) {
      buffers.push_back(backend.Allocate(values.size() * sizeof(float)).value());
      backend.CopyIn(buffers.back().data(), values.data(), values.size() * sizeof(float));
      return buffers.back().data();
    };
    const auto root = [](const std::vector<float>& tokens) {
      return std::vector<float>(tokens.end() - kRowFloats, tokens.end());
    };
    std::vector<KvLayer> layers(kLayers);
    for (int layer = 0; layer < kLayers; ++layer) {
      layers[layer].k_blocks = upload(BlockImage(tokens_[layer].k));
      layers[layer].v_blocks = upload(BlockImage(tokens_[layer].v));
      layers[layer].k_staged = upload(root(tokens_[layer].k));
      layers[layer].v_staged = upload(root(tokens_[layer].v));
    }
    const int width = kRowFloats * kGroup;
    const MatrixView query{static_cast<float*>(upload(query_)), 1, width, width};
    const MatrixView out{static_cast<float*>(upload(std::vector<float>(width))), 1, width, width};
    const auto pass = backend.NewPass(kKvHeads * kGroup);
    backend.LoadPass(RootPlan(), shape, pass.get());
    const float scale = 0.25f;
    for (int layer = 0; layer < kLayers; ++layer) {
      backend.layer_ops()->Attention(
          *pass, {.q = query, .kv = {shape, layers}, .layer = layer, .scale = scale}, out);
      std::vector<float> result(width);
      backend.CopyOut(result.data(), out.data, width * sizeof(float));
      for (int head = 0; head < kKvHeads * kGroup; ++head) {
        const std::vector<double> expected = Expected(layer, head, scale);
        for (int d = 0; d < kDim; ++d) {
          EXPECT_NEAR(result[head * kDim + d], expected[d], 1e-5)
              << backend.info().name << " layer " << layer << " head " << head;
        }
      }
    }
  }

  std::mt19937 random_;
  std::vector<int32_t> blocks_;  // blocks of the sequence, in random places of the pool
  LayerTokens tokens_[kLayers];
  std::vector<float> query_;  // [kKvHeads * kGroup][kDim]
  std::vector<float> scores_;
  BlockSelection selection_;
};

TEST_F(PartialAttentionTest, HeadsSeeDifferentBlocks) {
  EXPECT_NE(VisiblePositions(0, 0), VisiblePositions(0, 1));
  EXPECT_NE(VisiblePositions(0, 0), VisiblePositions(1, 0));
  EXPECT_EQ(static_cast<int>(VisiblePositions(1, 1).size()), 7 * kBlock + 5 + 1);
}

TEST_F(PartialAttentionTest, ReferenceReadsTheChosenKeys) { CheckBackend(*NewReferenceBackend()); }

TEST_F(PartialAttentionTest, CpuReadsTheChosenKeys) {
  for (const int threads : {1, 2}) CheckBackend(*NewTestBackend(threads));
}

}  // namespace
}  // namespace talon
