// What partial verification keeps in the cache: tails and key summaries.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "compute/cpu/cpu_backend.h"
#include "compute/host/host_memory.h"
#include "compute/reference/reference_backend.h"
#include "kv/kv_cache.h"

namespace talon {
namespace {

constexpr int kPartialHeadDim = 4;
constexpr int kHeads = 2;
constexpr int kSharedRows = 20;
constexpr int kTailRows = 12;

class PartialKvTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    backend_ = GetParam() ? NewCpuBackend(2) : NewReferenceBackend();
    MakeCache({.audit = true, .tail_regions = 2, .tail_rows = kTailRows});
  }

  void MakeCache(const KvOptions& options) {
    const KvShape shape{.num_layers = 3,
                        .kv_heads = kHeads,
                        .head_dim = kPartialHeadDim,
                        .block_size = 8,
                        .dtype = DType::kF32,
                        .num_blocks = 24,
                        .staging_rows = kSharedRows,
                        .key_summaries = true};
    auto cache = KvCache::Create(backend_.get(), shape, &metrics_, options);
    ASSERT_TRUE(cache.ok()) << cache.status().message();
    cache_ = std::move(cache).value();
  }

  float* StagedKey(int layer, int row) {
    return static_cast<float*>(cache_->view().layers[layer].k_staged) +
           row * kHeads * kPartialHeadDim;
  }

  // Begins a pass over these rows and fills them: row i of the pass holds stamp + i.
  Status Stage(std::vector<StagedRows> ranges, float stamp) {
    TALON_RETURN_IF_ERROR(cache_->staging().Begin(ranges));
    for (const StagedRows& range : ranges) {
      for (int row = range.first; row < range.end(); ++row, ++stamp) {
        for (int layer = 0; layer < 3; ++layer) {
          for (int i = 0; i < kHeads * kPartialHeadDim; ++i) {
            StagedKey(layer, row)[i] = stamp + 1000.0f * static_cast<float>(layer);
          }
        }
      }
    }
    cache_->staging().Report(std::vector<uint8_t>{1, 1, 1});
    return OkStatus();
  }

  void Commit(Sequence* sequence, int count, float stamp) {
    ASSERT_TRUE(Stage({{0, count}}, stamp).ok());
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    sequence->tokens.resize(sequence->committed_len + count);
    ASSERT_TRUE(cache_->Commit(sequence, rows).ok());
    cache_->staging().Clear();
  }

  std::vector<float> TailKeys(const Sequence& sequence, int layer) {
    std::vector<float> keys;
    for (int i = 0; i < sequence.tail_len; ++i) {
      keys.push_back(*StagedKey(layer, sequence.tail_first + i));
    }
    return keys;
  }

  // The summary of every full block is that of the keys it holds.
  void ExpectSummaries(const Sequence& sequence) {
    const KvShape& shape = cache_->shape();
    for (const KvLayer& arrays : cache_->view().layers) {
      const auto* keys = static_cast<const float*>(arrays.k_blocks);
      for (int b = 0; b < sequence.committed_len / shape.block_size; ++b) {
        for (int i = 0; i < kHeads * kPartialHeadDim; ++i) {
          const int32_t slot = sequence.blocks[b] * shape.block_size;
          float largest = -HUGE_VALF, smallest = HUGE_VALF;
          for (int t = 0; t < shape.block_size; ++t) {
            const float key =
                keys[SlotVector(shape, slot + t, i / kPartialHeadDim) * kPartialHeadDim +
                     i % kPartialHeadDim];
            largest = std::max(largest, key);
            smallest = std::min(smallest, key);
          }
          const int64_t at = int64_t{sequence.blocks[b]} * kHeads * kPartialHeadDim + i;
          EXPECT_EQ(static_cast<const float*>(arrays.key_max)[at], largest) << "block " << b;
          EXPECT_EQ(static_cast<const float*>(arrays.key_min)[at], smallest) << "block " << b;
        }
      }
    }
  }

  void ExpectIntact(std::vector<const Sequence*> sequences) {
    const Status status = cache_->CheckIntegrity(sequences);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  std::unique_ptr<Backend> backend_;
  Metrics metrics_;
  std::unique_ptr<KvCache> cache_;
};

TEST_P(PartialKvTest, TailGrowsByAcceptedPaths) {
  Sequence sequence{.id = 1};
  Commit(&sequence, 10, 0);
  const uint64_t hash = cache_->audit().ContentHash(sequence);
  ASSERT_TRUE(cache_->staging().OpenTail(&sequence).ok());
  EXPECT_EQ(sequence.tail_first, kSharedRows);
  ASSERT_TRUE(Stage({{sequence.tail_first, 6}}, 100).ok());
  ASSERT_TRUE(cache_->AppendTail(&sequence, std::vector<int32_t>{0, 2, 5}).ok());
  cache_->staging().Clear();
  ASSERT_TRUE(Stage({{sequence.tail_first + 3, 4}}, 200).ok());
  ASSERT_TRUE(cache_->AppendTail(&sequence, std::vector<int32_t>{0, 3}).ok());
  cache_->staging().Clear();
  EXPECT_EQ(TailKeys(sequence, 0), (std::vector<float>{100, 102, 105, 200, 203}));
  EXPECT_EQ(TailKeys(sequence, 2), (std::vector<float>{2100, 2102, 2105, 2200, 2203}));
  EXPECT_EQ(sequence.committed_len, 10);
  EXPECT_EQ(cache_->audit().ContentHash(sequence), hash);
  ExpectIntact({&sequence});
}

TEST_P(PartialKvTest, OnlyOffloadedBlocksHaveCopiesOfViews) {
  const size_t bytes = cache_->bytes();
  const auto copy_a_block = [this](bool offload, int view_blocks) {
    MakeCache({.offload = offload,
               .tail_regions = 2,
               .tail_rows = kTailRows,
               .view_blocks = view_blocks});
    Sequence sequence{.id = 1};
    Commit(&sequence, 8, 0);
    const std::vector<int32_t> blocks(size_t{3} * kHeads, sequence.blocks[0]);
    return cache_->CopyToView(&sequence, blocks).status().message();
  };
  EXPECT_EQ(copy_a_block(false, 1), "kv: there are no copies of views");
  EXPECT_EQ(cache_->bytes(), bytes);
  EXPECT_EQ(copy_a_block(true, 0), "kv: there are no copies of views");
  EXPECT_EQ(copy_a_block(true, 1), "");
  EXPECT_EQ(cache_->bytes(), bytes + 2 * 8 * cache_->shape().BytesPerToken());
}

TEST_P(PartialKvTest, MixedPassesStageBothPlaces) {
  Sequence full{.id = 1}, partial{.id = 2};
  Commit(&full, 8, 0);
  Commit(&partial, 8, 50);
  ASSERT_TRUE(cache_->staging().OpenTail(&partial).ok());
  ASSERT_TRUE(Stage({{partial.tail_first, 2}}, 300).ok());
  ASSERT_TRUE(cache_->AppendTail(&partial, std::vector<int32_t>{0, 1}).ok());
  cache_->staging().Clear();
  // Rows 0..2 belong to the partial tree and stay free in the shared area.
  ASSERT_TRUE(Stage({{partial.tail_first + 2, 3}, {3, 4}}, 400).ok());
  full.tokens.resize(12);
  EXPECT_EQ(cache_->Commit(&full, std::vector<int32_t>{2, 3}).message(),
            "incomplete: row 2 is not of this pass");
  EXPECT_TRUE(cache_->Commit(&full, std::vector<int32_t>{3, 5}).ok());
  EXPECT_EQ(cache_->AppendTail(&partial, std::vector<int32_t>{0, 3}).message(),
            "incomplete: row 25 is not of this pass");
  EXPECT_EQ(partial.tail_len, 2);
  EXPECT_TRUE(cache_->AppendTail(&partial, std::vector<int32_t>{0, 2}).ok());
  cache_->staging().Clear();
  EXPECT_TRUE(cache_->staging().is_clear());
  EXPECT_EQ(TailKeys(partial, 1), (std::vector<float>{1300, 1301, 1400, 1402}));
  EXPECT_EQ(full.committed_len, 10);
  ExpectIntact({&full, &partial});
}

TEST_P(PartialKvTest, StagingPastATailOverflows) {
  Sequence sequence{.id = 1};
  ASSERT_TRUE(cache_->staging().OpenTail(&sequence).ok());
  EXPECT_EQ(Stage({{sequence.tail_first + 5, 8}}, 0).message(),
            "overflow: 8 rows after 5, a tail holds 12");
  EXPECT_EQ(Stage({{18, 3}}, 0).message(), "overflow: 21 rows, staging holds 20");
  EXPECT_TRUE(cache_->staging().is_clear());
  EXPECT_TRUE(Stage({{sequence.tail_first, 12}}, 0).ok());
}

TEST_P(PartialKvTest, MissingLayerKeepsTheTailAsItWas) {
  Sequence sequence{.id = 1};
  ASSERT_TRUE(cache_->staging().OpenTail(&sequence).ok());
  const StagedRows rows{sequence.tail_first, 2};
  ASSERT_TRUE(cache_->staging().Begin(std::span(&rows, 1)).ok());
  cache_->staging().Report(std::vector<uint8_t>{1, 0, 1});
  EXPECT_EQ(cache_->AppendTail(&sequence, std::vector<int32_t>{0}).message(),
            "incomplete: layer 1 has not stored its rows");
  EXPECT_EQ(sequence.tail_len, 0);
}

TEST_P(PartialKvTest, WhatMovesThePrefixEndsTheTail) {
  Sequence sequence{.id = 1};
  Commit(&sequence, 10, 0);
  ASSERT_TRUE(cache_->staging().OpenTail(&sequence).ok());
  const auto append = [&] {
    ASSERT_TRUE(Stage({{sequence.tail_first, 3}}, 100).ok());
    ASSERT_TRUE(cache_->AppendTail(&sequence, std::vector<int32_t>{0, 1, 2}).ok());
    cache_->staging().Clear();
    sequence.tokens.resize(14);
    ASSERT_EQ(sequence.tail_len, 3);
  };
  append();
  const Sequence fork = cache_->Fork(sequence, 2);
  EXPECT_EQ(fork.tail_first, -1);
  EXPECT_EQ(fork.tail_len, 0);
  EXPECT_EQ(fork.tokens.size(), 11u);
  ExpectIntact({&sequence, &fork});
  ASSERT_TRUE(cache_->Rewind(&sequence, 10).ok());
  EXPECT_EQ(sequence.tail_len, 0);
  EXPECT_EQ(sequence.tokens.size(), 11u);
  append();
  Commit(&sequence, 4, 500);
  EXPECT_EQ(sequence.tail_len, 0);
  EXPECT_EQ(sequence.tail_first, kSharedRows);
  append();
  cache_->staging().DropTail(&sequence);
  EXPECT_EQ(sequence.tail_len, 0);
  ExpectIntact({&sequence, &fork});
}

TEST_P(PartialKvTest, TailsAreHandedBack) {
  Sequence first{.id = 1}, second{.id = 2}, third{.id = 3};
  ASSERT_TRUE(cache_->staging().OpenTail(&first).ok());
  ASSERT_TRUE(cache_->staging().OpenTail(&second).ok());
  EXPECT_EQ(cache_->staging().OpenTail(&third).message(), "kv: all 2 tails are taken (sequence 3)");
  EXPECT_NE(first.tail_first, second.tail_first);
  cache_->Free(&first);
  EXPECT_EQ(first.tail_first, -1);
  EXPECT_TRUE(cache_->staging().OpenTail(&third).ok());
  ExpectIntact({&second, &third});
  cache_->staging().CloseTail(&second);
  ExpectIntact({&second, &third});
  second.tail_len = 1;
  EXPECT_EQ(cache_->staging().CheckTails(std::vector<const Sequence*>{&second}).message(),
            "kv: sequence 2 has a tail of 1 tokens, room for 0");
  second.tail_len = 0;
  third.tail_first = -1;  // lost
  EXPECT_FALSE(cache_->CheckIntegrity(std::vector<const Sequence*>{&second, &third}).ok());
}

TEST_P(PartialKvTest, SummariesFollowFillRewindForkAndRefill) {
  Sequence first{.id = 1};
  Commit(&first, 20, 0);
  ExpectSummaries(first);
  Commit(&first, 4, 300);
  ExpectSummaries(first);
  Sequence second = cache_->Fork(first, 2);
  ASSERT_TRUE(cache_->Rewind(&second, 13).ok());
  Commit(&second, 11, 700);  // its second block is a copy, refilled
  ExpectSummaries(second);
  ExpectSummaries(first);
  EXPECT_EQ(first.blocks[0], second.blocks[0]);
  EXPECT_NE(first.blocks[1], second.blocks[1]);
  ASSERT_TRUE(cache_->Rewind(&first, 5).ok());
  Commit(&first, 20, -400);
  ExpectSummaries(first);
  ExpectSummaries(second);
  ExpectIntact({&first, &second});
}

TEST_P(PartialKvTest, PromptsAndMovedRowsAreSummarised) {
  Sequence sequence{.id = 1};
  const auto reserve = [&](int count, float stamp) {
    auto reservation = cache_->Reserve(sequence, count);
    EXPECT_TRUE(reservation.ok());
    for (const KvLayer& arrays : cache_->view().layers) {
      for (const int32_t slot : reservation->slots) {
        auto* keys = static_cast<float*>(arrays.k_blocks);
        for (int head = 0; head < kHeads; ++head) {
          for (int d = 0; d < kPartialHeadDim; ++d) {
            keys[SlotVector(cache_->shape(), slot, head) * kPartialHeadDim + d] =
                ++stamp * (d % 2 == 0 ? 1 : -1);
          }
        }
      }
    }
    return std::move(*reservation);
  };
  sequence.tokens.resize(40);
  cache_->Advance(&sequence, reserve(19, 1), 19, "prefill");
  ExpectSummaries(sequence);
  ASSERT_TRUE(
      cache_
          ->CommitReserved(&sequence, reserve(12, 1000), std::vector<int32_t>{0, 2, 3, 5, 6, 8, 11})
          .ok());
  EXPECT_EQ(sequence.committed_len, 26);
  ExpectSummaries(sequence);
}

TEST_P(PartialKvTest, SummariesHoldAfterRandomOperations) {
  std::mt19937 random(3);
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  Sequence first{.id = 1}, second{.id = 2};
  for (int op = 0; op < 400; ++op) {
    Sequence* sequence = pick(2) == 0 ? &first : &second;
    if (const int kind = pick(4); kind <= 1 && sequence->committed_len < 60) {
      Commit(sequence, 1 + pick(20), static_cast<float>(pick(1000)));
    } else if (kind == 2) {
      ASSERT_TRUE(cache_->Rewind(sequence, pick(sequence->committed_len + 1)).ok());
    } else if (kind == 3) {
      cache_->Free(&second);
      second = cache_->Fork(first, 2);
    }
    ExpectSummaries(first);
    ExpectSummaries(second);
    ExpectIntact({&first, &second});
    if (HasFailure()) FAIL() << "after operation " << op;
  }
}

TEST(PartialKv, NothingIsAllocatedUnlessAskedFor) {
  const auto backend = NewReferenceBackend();
  Metrics metrics;
  KvShape shape{.num_layers = 1, .kv_heads = 2, .head_dim = 64, .block_size = 16, .num_blocks = 32};
  const auto plain = KvCache::Create(backend.get(), shape, &metrics);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ((*plain)->bytes(), 2 * 32 * shape.BlockBytes());
  EXPECT_EQ((*plain)->view().layers[0].key_max, nullptr);
  shape.key_summaries = true;
  const auto with = KvCache::Create(backend.get(), shape, &metrics);
  ASSERT_TRUE(with.ok());
  // One sixteenth of K and V, and a float per (block, kv head).
  EXPECT_EQ((*with)->bytes(), (*plain)->bytes() / 16 * 17 + 32 * 2 * sizeof(float));
}

INSTANTIATE_TEST_SUITE_P(Backends, PartialKvTest, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

}  // namespace
}  // namespace talon
