// The prefix index: what it finds, and what the cache keeps for it.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <random>

#include "compute/reference/reference_backend.h"
#include "kv/kv_cache.h"
#include "kv/prefix_index.h"

namespace talon {
namespace {

constexpr int kBlock = 8;

TEST(PrefixIndex, FindsByParentAndAllTokens) {
  PrefixIndex index;
  const std::array<int32_t, 3> abc = {1, 2, 3};
  const std::array<int32_t, 3> abd = {1, 2, 4};
  index.Insert(PrefixIndex::kRoot, abc, 7);
  index.Insert(7, abc, 9);
  EXPECT_EQ(index.Find(PrefixIndex::kRoot, abc), 7);
  EXPECT_EQ(index.Find(7, abc), 9);
  EXPECT_EQ(index.Find(9, abc), PrefixIndex::kNone);
  EXPECT_EQ(index.Find(PrefixIndex::kRoot, abd), PrefixIndex::kNone);
  EXPECT_EQ(index.FindBeginning(PrefixIndex::kRoot, std::span(abd).first(2)), 7);
  EXPECT_EQ(index.FindBeginning(PrefixIndex::kRoot, abd), PrefixIndex::kNone);
  EXPECT_EQ(index.FindBeginning(8, std::span(abd).first(2)), PrefixIndex::kNone);
  index.Remove(7);
  EXPECT_EQ(index.Find(PrefixIndex::kRoot, abc), PrefixIndex::kNone);
  EXPECT_FALSE(index.Knows(7));
  EXPECT_TRUE(index.Knows(9));
}

class PrefixCacheTest : public testing::Test {
 protected:
  void Make(int blocks, bool index = true) {
    const KvShape shape{.num_layers = 2,
                        .kv_heads = 1,
                        .head_dim = 4,
                        .block_size = kBlock,
                        .dtype = DType::kF32,
                        .num_blocks = blocks,
                        .staging_rows = 16};
    auto cache =
        KvCache::Create(backend_.get(), shape, &metrics_, {.audit = true, .prefix_index = index});
    ASSERT_TRUE(cache.ok()) << cache.status().message();
    cache_ = std::move(cache).value();
  }
  // Four values fill a block: each stands for two tokens, the last one for one, the root.
  static Sequence NewSequence(const std::vector<int32_t>& values, SequenceId id = 1) {
    Sequence sequence;
    sequence.id = id;
    for (const int32_t value : values) sequence.tokens.insert(sequence.tokens.end(), 2, value);
    sequence.tokens.pop_back();
    return sequence;
  }
  // As a prompt pass would: everything but the last token.
  void Compute(Sequence* sequence) {
    const int count = static_cast<int>(sequence->tokens.size()) - 1 - sequence->committed_len;
    auto reservation = cache_->Reserve(*sequence, count);
    ASSERT_TRUE(reservation.ok()) << reservation.status().message();
    cache_->Advance(sequence, std::move(*reservation), count, "prefill");
  }
  int Attach(Sequence* sequence) {
    return cache_->prefix().Attach(sequence, static_cast<int>(sequence->tokens.size()) - 1);
  }
  void ExpectIntact(std::vector<const Sequence*> sequences) {
    const Status status = cache_->CheckIntegrity(sequences);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  std::unique_ptr<Backend> backend_ = NewReferenceBackend();
  Metrics metrics_;
  std::unique_ptr<KvCache> cache_;
};

TEST_F(PrefixCacheTest, AttachesFullBlocksAndLeavesOneToken) {
  Make(8);
  Sequence a = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(Attach(&a), 0);
  Compute(&a);
  const std::vector<int32_t> blocks = a.blocks;
  cache_->Free(&a);
  EXPECT_EQ(cache_->pool().cached_blocks(), 2);
  EXPECT_EQ(cache_->pool().free_blocks(), 8);

  Sequence same = NewSequence({1, 2, 3, 4, 5, 6, 7, 8}, 2);  // its last block must be computed
  EXPECT_EQ(Attach(&same), kBlock);
  Sequence longer = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 1}, 3);
  EXPECT_EQ(Attach(&longer), 2 * kBlock);
  EXPECT_EQ(longer.blocks, blocks);
  Sequence other = NewSequence({1, 2, 3, 9, 5, 6, 7, 8, 1}, 4);
  EXPECT_EQ(Attach(&other), 0);
  ExpectIntact({&same, &longer, &other});
}

TEST_F(PrefixCacheTest, WithoutIndexNothingIsKept) {
  Make(8, /*index=*/false);
  Sequence a = NewSequence({1, 2, 3, 4, 5});
  Compute(&a);
  cache_->Free(&a);
  EXPECT_EQ(cache_->pool().cached_blocks(), 0);
  Sequence b = NewSequence({1, 2, 3, 4, 5});
  EXPECT_EQ(Attach(&b), 0);
}

TEST_F(PrefixCacheTest, EvictsLeavesFirstThenLeastRecentlyUsed) {
  Make(4);
  Sequence old = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 9});
  Compute(&old);
  cache_->Free(&old);
  Sequence young = NewSequence({9, 2, 3, 4, 5});
  Compute(&young);
  cache_->Free(&young);
  EXPECT_EQ(cache_->pool().cached_blocks(), 3);

  Sequence big = NewSequence({7, 7, 7, 7, 7, 7, 7, 7, 7}, 2);  // one free block, one taken back
  Compute(&big);
  EXPECT_EQ(metrics_.Total(Counter::kKvEvictions), 1);
  Sequence again = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3);
  EXPECT_EQ(Attach(&again), kBlock);  // the root of the chain is still there
  Sequence second = NewSequence({9, 2, 3, 4, 5}, 4);
  EXPECT_EQ(Attach(&second), kBlock);
  ExpectIntact({&big, &again, &second});
}

TEST_F(PrefixCacheTest, UsedBlocksAreNeverTakenBack) {
  Make(3);
  Sequence a = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 9});
  Compute(&a);
  EXPECT_EQ(cache_->pool().free_blocks(), 1);
  EXPECT_FALSE(cache_->Reserve(NewSequence({1}, 2), 2 * kBlock).ok());
  ExpectIntact({&a});
}

TEST_F(PrefixCacheTest, EqualBlocksBecomeOne) {
  Make(8);
  Sequence a = NewSequence({1, 2, 3, 4, 5});
  Sequence b = NewSequence({1, 2, 3, 4, 6}, 2);
  EXPECT_EQ(Attach(&b), 0);
  Compute(&a);
  Compute(&b);
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(cache_->pool().used_blocks(), 1);
  ExpectIntact({&a, &b});
}

// A commit names its block only when its tokens were appended.
TEST_F(PrefixCacheTest, CommittedTokensAreKnownOnceAppended) {
  Make(8);
  Sequence a = NewSequence({1, 2, 3});
  Compute(&a);
  ASSERT_TRUE(cache_->staging().Begin(4).ok());
  cache_->staging().Report(std::vector<uint8_t>(cache_->shape().num_layers, 1));
  const std::array<int32_t, 4> rows = {0, 1, 2, 3};
  ASSERT_TRUE(cache_->Commit(&a, rows).ok());  // the root and three accepted tokens
  cache_->staging().Clear();
  EXPECT_EQ(a.indexed_blocks, 0);
  a.tokens.insert(a.tokens.end(), {3, 4, 4, 5});
  cache_->Free(&a);
  Sequence b = NewSequence({1, 2, 3, 4, 9}, 2);
  EXPECT_EQ(Attach(&b), kBlock);
}

TEST_F(PrefixCacheTest, RewindIntoKnownBlockCopiesIt) {
  Make(8);
  Sequence a = NewSequence({1, 2, 3, 4, 5});
  Compute(&a);
  const int32_t known = a.blocks[0];
  ASSERT_TRUE(cache_->Rewind(&a, 4).ok());
  EXPECT_EQ(a.tokens, (std::vector<int32_t>{1, 1, 2, 2, 3}));
  a.tokens = NewSequence({1, 2, 8, 8, 8}).tokens;
  Compute(&a);
  EXPECT_NE(a.blocks[0], known);
  Sequence b = NewSequence({1, 2, 3, 4, 5}, 2);
  EXPECT_EQ(Attach(&b), kBlock);
  EXPECT_EQ(b.blocks[0], known);
  Sequence c = NewSequence({1, 2, 8, 8, 5}, 3);
  EXPECT_EQ(Attach(&c), kBlock);
  EXPECT_EQ(c.blocks[0], a.blocks[0]);
  ExpectIntact({&a, &b, &c});
}

TEST_F(PrefixCacheTest, SiblingIsCopiedUpToItsLastToken) {
  Make(8);
  Sequence a = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 9});
  Compute(&a);
  Sequence b = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 9}, 2);
  b.tokens[15] = 0;
  EXPECT_EQ(Attach(&b), kBlock);
  EXPECT_EQ(cache_->prefix().FindSibling(b), a.blocks[1]);
  ASSERT_TRUE(cache_->AttachCopy(&b, a.blocks[1], kBlock - 1).ok());
  EXPECT_EQ(b.committed_len, 2 * kBlock - 1);
  EXPECT_NE(b.blocks[1], a.blocks[1]);
  ExpectIntact({&a, &b});
  EXPECT_TRUE(cache_->audit().Check(b).ok());
  Sequence c = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3);
  c.tokens[14] = 0;
  Attach(&c);
  EXPECT_EQ(cache_->prefix().FindSibling(c), PrefixIndex::kNone);
}

TEST_F(PrefixCacheTest, SkippedTokensAreNeverIndexed) {
  Make(8);
  Sequence a = NewSequence({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  ASSERT_TRUE(cache_->prefix().Skip(&a, 2 * kBlock).ok());
  EXPECT_EQ(cache_->pool().used_blocks(), 1);
  Compute(&a);
  ExpectIntact({&a});
  cache_->Free(&a);
  EXPECT_EQ(cache_->pool().cached_blocks(), 0);
}

// Sequences of few different tokens come and go in a small pool; every attached block must hold
// what the same tokens had when they were computed.
TEST_F(PrefixCacheTest, RandomOperationsKeepContents) {
  Make(24);
  std::mt19937 random(5);
  std::vector<Sequence> live;
  int64_t attached = 0;
  for (int round = 0; round < 4000; ++round) {
    if (live.size() < 4 && random() % 2 == 0) {
      Sequence sequence;
      sequence.id = round + 1;
      const int length = 1 + static_cast<int>(random() % 44);
      for (int i = 0; i < length; ++i)
        sequence.tokens.push_back(i % 4 == 0 ? static_cast<int>(random() % 2) : 1);
      attached += Attach(&sequence);
      if (cache_->BlocksNeeded(sequence, length - 1 - sequence.committed_len) >
          cache_->pool().free_blocks()) {
        cache_->Free(&sequence);
      } else {
        Compute(&sequence);
        live.push_back(std::move(sequence));
      }
    } else if (!live.empty()) {
      const size_t i = random() % live.size();
      if (random() % 3 == 0) {
        ASSERT_TRUE(
            cache_->Rewind(&live[i], static_cast<int>(random() % 45) % (live[i].committed_len + 1))
                .ok());
      } else {
        cache_->Free(&live[i]);
        live.erase(live.begin() + static_cast<int64_t>(i));
      }
    }
    std::vector<const Sequence*> sequences;
    for (const Sequence& sequence : live) sequences.push_back(&sequence);
    ExpectIntact(sequences);
    // Equal tokens, equal blocks.
    std::map<std::vector<int32_t>, int32_t> holders;
    for (const Sequence& sequence : live) {
      for (int i = 0; i < sequence.indexed_blocks; ++i) {
        const std::vector<int32_t> prefix(sequence.tokens.begin(),
                                          sequence.tokens.begin() + (i + 1) * kBlock);
        const auto [at, is_new] = holders.insert({prefix, sequence.blocks[i]});
        EXPECT_EQ(at->second, sequence.blocks[i]);
      }
    }
  }
  EXPECT_GT(attached, 1000);
  EXPECT_GT(metrics_.Total(Counter::kKvEvictions), 50);
}

}  // namespace
}  // namespace talon
