#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>

#include "base/math.h"
#include "compute/backend.h"
#include "compute/reference/reference_backend.h"

namespace talon {
namespace {

constexpr int kHeadDim = 4;

// A cache whose staging rows the test fills by hand: row r of layer l holds a value made from both.
class KvCacheTest : public testing::Test {
 protected:
  void Make(int layers, int blocks, int staging_rows = 64) {
    shape_ = {.num_layers = layers,
              .kv_heads = 2,
              .head_dim = kHeadDim,
              .block_size = 16,
              .dtype = DType::kF32,
              .num_blocks = blocks,
              .staging_rows = staging_rows};
    auto cache = KvCache::Create(backend_.get(), shape_, &metrics_, {.audit = true});
    ASSERT_TRUE(cache.ok()) << cache.status().message();
    cache_ = std::move(cache).value();
  }

  // Stages rows with values that identify (layer, row, stamp).
  void Stage(int rows, float stamp) {
    ASSERT_TRUE(cache_->staging().Begin(rows).ok());
    const int width = shape_.kv_heads * kHeadDim;
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      for (int row = 0; row < rows; ++row) {
        std::vector<float> values(width, stamp + static_cast<float>(row) + 0.01f * layer);
        for (void* array :
             {cache_->view().layers[layer].k_staged, cache_->view().layers[layer].v_staged}) {
          backend_->CopyIn(static_cast<float*>(array) + row * width, values.data(),
                           shape_.RowBytes());
        }
      }
    }
    cache_->staging().Report(std::vector<uint8_t>(shape_.num_layers, 1));
  }

  Status StageAndCommit(Sequence* sequence, int count, float stamp) {
    Stage(count, stamp);
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    for (int i = 0; i < count; ++i) sequence->tokens.push_back(i);
    const Status status = cache_->Commit(sequence, rows);
    if (!status.ok()) sequence->tokens.resize(sequence->tokens.size() - count);
    cache_->staging().Clear();
    return status;
  }

  float KeyAt(const Sequence& sequence, int position, int layer = 0) {
    const int32_t block = sequence.blocks[position / 16];
    const auto* keys = static_cast<const float*>(cache_->view().layers[layer].k_blocks);
    float value = 0;
    backend_->CopyOut(&value, keys + block * 2 * 16 * kHeadDim + position % 16 * kHeadDim,
                      sizeof(value));
    return value;
  }

  void ExpectIntact(std::vector<const Sequence*> sequences) {
    const Status status = cache_->CheckIntegrity(sequences);
    EXPECT_TRUE(status.ok()) << status.message();
    for (const Sequence* sequence : sequences) {
      const Status audit = cache_->audit().Check(*sequence);
      EXPECT_TRUE(audit.ok()) << audit.message();
    }
  }

  std::unique_ptr<Backend> backend_ = NewReferenceBackend();
  Metrics metrics_;
  KvShape shape_;
  std::unique_ptr<KvCache> cache_;
};

TEST_F(KvCacheTest, BadShapesAreRefused) {
  shape_ = {.num_layers = 1, .kv_heads = 1, .head_dim = 4, .block_size = 12, .num_blocks = 4};
  EXPECT_EQ(KvCache::Create(backend_.get(), shape_, &metrics_).status().message(),
            "kv: block size 12, must be 8, 16, 32 or 64");
  shape_.block_size = 16;
  shape_.num_blocks = 0;
  EXPECT_FALSE(KvCache::Create(backend_.get(), shape_, &metrics_).ok());
}

TEST_F(KvCacheTest, CommitWritesAPathInOrder) {
  Make(3, 8);
  Sequence sequence{.id = 1};
  Stage(6, 100);
  sequence.tokens = {1, 2, 3};
  ASSERT_TRUE(cache_->Commit(&sequence, std::vector<int32_t>{0, 2, 5}).ok());
  cache_->staging().Clear();
  EXPECT_EQ(sequence.committed_len, 3);
  EXPECT_FLOAT_EQ(KeyAt(sequence, 0), 100);
  EXPECT_FLOAT_EQ(KeyAt(sequence, 1), 102);
  EXPECT_FLOAT_EQ(KeyAt(sequence, 2, 2), 105.02f);
  ExpectIntact({&sequence});
}

// One copy for the sequences of a step, which is done before anything else touches their blocks.
TEST_F(KvCacheTest, CommitsOfAStepAreCopiedTogether) {
  Make(2, 3);
  cache_ = std::move(KvCache::Create(backend_.get(), shape_, &metrics_)).value();  // no audit
  const auto* keys = static_cast<const float*>(cache_->view().layers[1].k_blocks);
  const auto first_key = [&](int32_t block) { return keys[block * 2 * 16 * kHeadDim]; };
  Stage(3, 100);
  Sequence a{.id = 1, .tokens = {5}};
  Sequence b{.id = 2, .tokens = {6}};
  const int32_t rows_of_a[] = {1};
  const int32_t rows_of_b[] = {2};
  ASSERT_TRUE(cache_->Commit(&a, rows_of_a).ok());
  ASSERT_TRUE(cache_->Commit(&b, rows_of_b).ok());
  EXPECT_NE(first_key(a.blocks[0]), 101.01f);
  cache_->CopyCommitted();
  EXPECT_EQ(first_key(a.blocks[0]), 101.01f);
  EXPECT_EQ(first_key(b.blocks[0]), 102.01f);

  // A block that changes hands has the rows of its new sequence.
  Sequence c{.id = 3, .tokens = {7}};
  ASSERT_TRUE(cache_->Commit(&c, rows_of_b).ok());
  const int32_t block = c.blocks[0];
  cache_->Free(&c);
  const float value = 7;
  backend_->CopyIn(const_cast<float*>(keys) + block * 2 * 16 * kHeadDim, &value, sizeof(value));
  cache_->CopyCommitted();
  EXPECT_EQ(first_key(block), 7);
}

TEST_F(KvCacheTest, PreStepCoversPrefix) {
  Make(2, 8);
  Sequence sequence{.id = 1};
  for (const int count : {1, 14, 1, 1, 16, 5}) {
    ASSERT_TRUE(StageAndCommit(&sequence, count, 0).ok());
    EXPECT_EQ(static_cast<int>(sequence.blocks.size()), CeilDiv(sequence.committed_len, 16));
    ExpectIntact({&sequence});
  }
}

TEST_F(KvCacheTest, BytesWrittenEqualsAccepted) {
  Make(4, 8);
  Sequence sequence{.id = 1};
  Stage(48, 0);
  sequence.tokens.resize(30);
  std::vector<int32_t> rows(30);
  std::iota(rows.begin(), rows.end(), 5);
  ASSERT_TRUE(cache_->Commit(&sequence, rows).ok());
  cache_->staging().Clear();
  const auto token_bytes = static_cast<int64_t>(shape_.BytesPerToken());
  EXPECT_EQ(metrics_.Total(Counter::kKvBytesWritten), 30 * token_bytes);
  EXPECT_EQ(metrics_.Total(Counter::kKvBytesStaged), 48 * token_bytes);
}

TEST_F(KvCacheTest, CommitAllOrNothing) {
  Make(5, 4);
  Sequence sequence{.id = 1};
  ASSERT_TRUE(StageAndCommit(&sequence, 15, 0).ok());
  for (int layer = 0; layer < 5; ++layer) {
    const Sequence before = sequence;
    const uint64_t hash = cache_->audit().ContentHash(sequence);
    const int free_before = cache_->pool().free_blocks();
    cache_->InjectCommitFault(layer);
    const Status status = StageAndCommit(&sequence, 4, 50);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.message().find("commit_failed"), 0u);
    EXPECT_EQ(sequence.committed_len, before.committed_len);
    EXPECT_EQ(sequence.blocks, before.blocks);
    EXPECT_EQ(cache_->pool().free_blocks(), free_before);
    EXPECT_EQ(cache_->audit().ContentHash(sequence), hash);
    ExpectIntact({&sequence});
  }
  EXPECT_TRUE(StageAndCommit(&sequence, 4, 50).ok());
  EXPECT_EQ(sequence.committed_len, 19);
}

TEST_F(KvCacheTest, OutOfBlocksChangesNothing) {
  Make(2, 2);
  Sequence sequence{.id = 41};
  ASSERT_TRUE(StageAndCommit(&sequence, 30, 0).ok());
  const Status status = StageAndCommit(&sequence, 8, 0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "no_blocks: kv: need 1 blocks, 0 free (sequence 41)");
  EXPECT_EQ(sequence.committed_len, 30);
  ExpectIntact({&sequence});
  EXPECT_TRUE(StageAndCommit(&sequence, 2, 0).ok());
}

TEST_F(KvCacheTest, StagingReasons) {
  Make(2, 4, 8);
  EXPECT_EQ(cache_->staging().Begin(9).message(), "overflow: 9 rows, staging holds 8");
  ASSERT_TRUE(cache_->staging().Begin(4).ok());
  EXPECT_EQ(cache_->staging().Begin(1).message(), "busy: staging still holds 4 rows");
  Sequence sequence{.id = 1};
  const std::vector<int32_t> rows = {0, 3};
  EXPECT_EQ(cache_->Commit(&sequence, rows).message(),
            "incomplete: layer 0 has not stored its rows");
  cache_->staging().Report(std::vector<uint8_t>{1});
  EXPECT_EQ(cache_->Commit(&sequence, rows).message(),
            "incomplete: layer 1 has not stored its rows");
  cache_->staging().Report(std::vector<uint8_t>{1, 1});
  EXPECT_EQ(cache_->Commit(&sequence, std::vector<int32_t>{0, 4}).message(),
            "incomplete: row 4 is not of this pass");
  EXPECT_EQ(sequence.committed_len, 0);
  sequence.tokens = {1, 2};
  EXPECT_TRUE(cache_->Commit(&sequence, rows).ok());
  cache_->staging().Clear();
  ASSERT_TRUE(cache_->staging().Begin(8).ok());
  EXPECT_EQ(cache_->Commit(&sequence, rows).message(),  // the last pass's reports do not count
            "incomplete: layer 0 has not stored its rows");
}

// Rows and layers are stored in any order: each lands in its place, and only a complete pass is
// committed.
TEST_F(KvCacheTest, StagingOutOfOrder) {
  Make(3, 4);
  const std::vector<int32_t> places = {3, 1, 0, 2};  // staging row of each row of the pass
  std::vector<StagedRows> rows;
  PassPlan plan{.tokens = {0, 0, 0, 0},
                .positions = {0, 0, 0, 0},
                .slots = {-1, -1, -1, -1},
                .prefix_len = {0, 0, 0, 0},
                .sequence_rows = {0, 1, 2, 3, 4},
                .block_offsets = {0, 0, 0, 0, 0},
                .ancestors = {1, 1, 1, 1},
                .staging_first = places};
  for (const int32_t place : places) rows.push_back({place, 1});
  ASSERT_TRUE(cache_->staging().Begin(rows).ok());
  const auto pass = backend_->NewPass(shape_.kv_heads);
  backend_->LoadPass(plan, shape_, pass.get());
  Sequence sequence{.id = 1, .tokens = {0, 0, 0, 0}};
  const std::vector<int32_t> path = {0, 1, 2, 3};
  const int width = shape_.kv_heads * kHeadDim;
  for (const int layer : {2, 0, 1}) {
    EXPECT_FALSE(cache_->Commit(&sequence, path).ok()) << "before layer " << layer;
    std::vector<float> values;
    for (int row = 0; row < 4; ++row) {
      values.insert(values.end(), width, static_cast<float>(10 * layer + places[row]));
    }
    const MatrixView keys{values.data(), 4, width, width};
    backend_->kv_ops()->StoreKv(*pass, keys, keys, cache_->view(), layer);
    cache_->staging().Report(pass->stored_layers());
  }
  ASSERT_TRUE(cache_->Commit(&sequence, path).ok());
  for (int layer = 0; layer < 3; ++layer) {
    for (int position = 0; position < 4; ++position) {
      EXPECT_EQ(KeyAt(sequence, position, layer), 10 * layer + position);
    }
  }
}

// Without no-write-on-reject every row of a tree is written to a block, and those that move are
// written again.
TEST_F(KvCacheTest, DirectRowsCountAsWritten) {
  Make(2, 4);
  Sequence sequence{.id = 1, .tokens = {1, 2, 3, 4}};
  Reservation reservation = cache_->Reserve(sequence, 20).value();
  ASSERT_TRUE(
      cache_->CommitReserved(&sequence, std::move(reservation), std::vector<int32_t>{0, 1, 7})
          .ok());
  const auto token_bytes = static_cast<int64_t>(shape_.BytesPerToken());
  EXPECT_EQ(metrics_.Get(Counter::kKvBytesWritten, "tree"), 20 * token_bytes);
  EXPECT_EQ(metrics_.Get(Counter::kKvBytesWritten, "copy"), token_bytes);
  EXPECT_EQ(metrics_.Total(Counter::kKvBytesWritten), 21 * token_bytes);
  EXPECT_EQ(metrics_.Total(Counter::kKvBytesStaged), 0);
}

TEST_F(KvCacheTest, ReservedRowsMoveIntoPlace) {
  Make(2, 4);
  Sequence sequence{.id = 1, .tokens = {1, 2, 3, 4}};
  auto reservation = cache_->Reserve(sequence, 20);
  ASSERT_TRUE(reservation.ok());
  EXPECT_EQ(reservation->new_blocks.size(), 2u);
  const int width = 2 * 16 * kHeadDim;
  for (int i = 0; i < 20; ++i) {
    const int32_t slot = reservation->slots[i];
    const auto value = static_cast<float>(i);
    backend_->CopyIn(static_cast<float*>(cache_->view().layers[0].k_blocks) + slot / 16 * width +
                         slot % 16 * kHeadDim,
                     &value, sizeof(value));
  }
  ASSERT_TRUE(
      cache_->CommitReserved(&sequence, std::move(*reservation), std::vector<int32_t>{0, 3, 18})
          .ok());
  EXPECT_EQ(sequence.committed_len, 3);
  EXPECT_EQ(sequence.blocks.size(), 1u);
  EXPECT_EQ(KeyAt(sequence, 1), 3);
  EXPECT_EQ(KeyAt(sequence, 2), 18);
  ExpectIntact({&sequence});
}

TEST_F(KvCacheTest, RewindFreesWholeBlocksOnly) {
  Make(2, 8);
  Sequence sequence{.id = 1};
  ASSERT_TRUE(StageAndCommit(&sequence, 40, 0).ok());
  EXPECT_FALSE(cache_->Rewind(&sequence, 41).ok());
  EXPECT_FALSE(cache_->Rewind(&sequence, -1).ok());
  ASSERT_TRUE(cache_->Rewind(&sequence, 17).ok());
  EXPECT_EQ(sequence.blocks.size(), 2u);
  EXPECT_EQ(KeyAt(sequence, 16), 16);
  ExpectIntact({&sequence});
  ASSERT_TRUE(cache_->Rewind(&sequence, 0).ok());
  EXPECT_EQ(cache_->pool().used_blocks(), 0);
}

TEST_F(KvCacheTest, ForkIsolation) {
  Make(2, 8);
  Sequence first{.id = 1};
  ASSERT_TRUE(StageAndCommit(&first, 20, 0).ok());
  Sequence second = cache_->Fork(first, 2);
  EXPECT_EQ(cache_->pool().used_blocks(), 2);
  ASSERT_TRUE(StageAndCommit(&second, 3, 500).ok());
  ASSERT_TRUE(StageAndCommit(&first, 3, 700).ok());
  EXPECT_EQ(KeyAt(first, 19), KeyAt(second, 19));
  EXPECT_EQ(KeyAt(first, 20), 700);
  EXPECT_EQ(KeyAt(second, 20), 500);
  EXPECT_EQ(first.blocks[0], second.blocks[0]);
  ExpectIntact({&first, &second});
  cache_->Free(&first);
  cache_->Free(&second);
  EXPECT_EQ(cache_->pool().used_blocks(), 0);
}

TEST_F(KvCacheTest, ReservingNothingCopiesNoSharedBlock) {
  Make(2, 8);
  Sequence first{.id = 1};
  ASSERT_TRUE(StageAndCommit(&first, 20, 0).ok());
  const Sequence second = cache_->Fork(first, 2);
  const Reservation nothing = cache_->Reserve(second, 0).value();
  EXPECT_TRUE(nothing.new_blocks.empty());
  EXPECT_TRUE(nothing.slots.empty());
  EXPECT_FALSE(nothing.replaces_last_block);
  EXPECT_EQ(cache_->pool().used_blocks(), 2);
  const Reservation one = cache_->Reserve(second, 1).value();
  EXPECT_TRUE(one.replaces_last_block);
}

TEST_F(KvCacheTest, AuditSeesAChangedPrefix) {
  Make(2, 4);
  Sequence sequence{.id = 9};
  ASSERT_TRUE(StageAndCommit(&sequence, 5, 0).ok());
  const float poison = 1e9f;
  backend_->CopyIn(static_cast<float*>(cache_->view().layers[1].v_blocks) +
                       sequence.blocks[0] * 2 * 16 * kHeadDim + 3 * kHeadDim,
                   &poison, sizeof(poison));
  EXPECT_EQ(cache_->audit().Check(sequence).message().find(
                "kv: audit: committed token 3 of sequence 9 changed"),
            0u);
}

TEST_F(KvCacheTest, NoLeakRandomOps) {
  Make(2, 40);
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Sequence>> live;
  SequenceId next_id = 0;
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  for (int op = 0; op < 10000; ++op) {
    const int kind = live.empty() ? 0 : pick(6);
    if (kind == 0 && live.size() < 6) {
      live.push_back(std::make_unique<Sequence>(Sequence{.id = next_id++}));
    } else if (kind <= 2 && !live.empty()) {
      if (pick(10) == 0) cache_->InjectCommitFault(pick(3));
      (void)StageAndCommit(live[pick(live.size())].get(), 1 + pick(20), op).ok();
      cache_->InjectCommitFault(-1);
    } else if (kind == 3 && !live.empty()) {
      Sequence* sequence = live[pick(live.size())].get();
      ASSERT_TRUE(cache_->Rewind(sequence, pick(sequence->committed_len + 1)).ok());
    } else if (kind == 4 && live.size() < 6) {
      live.push_back(std::make_unique<Sequence>(cache_->Fork(*live[pick(live.size())], next_id++)));
    } else if (kind == 5) {
      const int victim = pick(live.size());
      cache_->Free(live[victim].get());
      live.erase(live.begin() + victim);
    }
    std::vector<const Sequence*> all;
    for (const auto& sequence : live) all.push_back(sequence.get());
    const Status status = cache_->CheckIntegrity(all);
    ASSERT_TRUE(status.ok()) << "op " << op << ": " << status.message();
  }
  for (const auto& sequence : live) {
    ASSERT_TRUE(cache_->audit().Check(*sequence).ok());
    cache_->Free(sequence.get());
  }
  EXPECT_EQ(cache_->pool().used_blocks(), 0);
}

}  // namespace
}  // namespace talon
