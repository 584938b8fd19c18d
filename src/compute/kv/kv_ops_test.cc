// Ops that move K and V: StoreKv, CommitRows, CopySlots, CopyStaged, CopyBlock.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compute/backend.h"
#include "compute/backend_testing.h"
#include "compute/host/host_memory.h"
#include "compute/kv/kv_testing.h"
#include "compute/kv/kv_units.h"

namespace talon {
namespace {

using testing::DeviceKv;
using testing::DeviceMatrix;
using testing::kKvTypes;
using testing::kLayer;
using testing::KvImage;
using testing::MakeBackend;
using testing::MaxDifference;
using testing::RandomValues;
using testing::Rounded;
using testing::SameBits;

KvShape SmallShape(DType dtype) {
  return {.num_layers = 2,
          .kv_heads = 3,
          .head_dim = KvValueType(dtype) == DType::kBF16 ? 24 : 20,  // units where the device can
          .block_size = 8,
          .dtype = dtype,
          .num_blocks = 5,
          .staging_rows = 6};
}

TEST(KvUnits, EveryElementOfEveryTokenHasItsPlace) {
  KvShape shape{.head_dim = 24, .dtype = DType::kBF16};
  std::vector<uint16_t> vectors(kUnitTokens * shape.head_dim);
  std::iota(vectors.begin(), vectors.end(), 1);
  for (const KvLayout layout : {KvLayout::kUnitsOfFours, KvLayout::kUnitsOfPairs}) {
    shape.layout = layout;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      std::vector<uint16_t> unit(vectors.size(), 0), read(vectors.size(), 0);
      for (int token = 0; token < kUnitTokens; ++token) {
        WriteToUnit(shape, side, vectors.data() + token * shape.head_dim, token, unit.data());
      }
      ReadUnits(shape, side, unit.data(), kUnitTokens, read.data());
      EXPECT_EQ(read, vectors);
      std::ranges::sort(unit);
      EXPECT_EQ(unit, vectors);
    }
  }
}

class KvOpsTest : public ::testing::TestWithParam<std::string> {
 protected:
  // A head's K or V in a slot or a staging row.
  std::vector<float> Slot(const DeviceKv& kv, const void* array, int64_t slot, int head) {
    const KvShape& shape = kv.view().shape;
    return testing::RowOf(kv.ReadBlocks(*backend_, array),
                          static_cast<int>(SlotVector(shape, slot, head)), shape.head_dim);
  }
  std::vector<float> Staged(const DeviceKv& kv, const void* array, int64_t row, int head) {
    const KvShape& shape = kv.view().shape;
    return testing::RowOf(kv.ReadStaged(*backend_, array),
                          static_cast<int>(StagedVector(shape, row, head)), shape.head_dim);
  }

  bool SlotHolds(const DeviceKv& kv, const KvImage& image, int slot, int64_t content) {
    const KvLayer& arrays = kv.view().layers[kLayer];
    for (int head = 0; head < image.shape().kv_heads; ++head) {
      if (!SameBits(Slot(kv, arrays.k_blocks, slot, head), image.Values(content, head, false)) ||
          !SameBits(Slot(kv, arrays.v_blocks, slot, head), image.Values(content, head, true))) {
        return false;
      }
    }
    return true;
  }

  int64_t CountNumbers(const DeviceKv& kv, const void* array) {
    int64_t count = 0;
    for (const float value : kv.ReadBlocks(*backend_, array)) count += !std::isnan(value);
    return count;
  }

  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
};

TEST_P(KvOpsTest, StoreKvRoundsAndWritesNothingElse) {
  for (const DType dtype : kKvTypes) {
    const KvShape shape = SmallShape(dtype);
    const int cols = shape.kv_heads * shape.head_dim;
    const DeviceKv kv(*backend_, KvImage(shape, kLayer));
    PassPlan plan{.tokens = {0, 0, 0},
                  .positions = {0, 1, 2},
                  .slots = {19, -1, 2},
                  .prefix_len = {1, 0, 1},
                  .sequence_rows = {0, 3},
                  .block_offsets = {0, 1},
                  .block_ids = {2},
                  .ancestors = {0, 2, 0}};
    const auto pass = backend_->NewPass(shape.kv_heads);
    backend_->LoadPass(plan, shape, pass.get());
    const std::vector<float> k = RandomValues(3 * cols, 31);
    const std::vector<float> v = RandomValues(3 * cols, 32);
    const DeviceMatrix device_k(*backend_, 3, cols, k);
    const DeviceMatrix device_v(*backend_, 3, cols, v);
    EXPECT_TRUE(pass->stored_layers().empty());
    backend_->kv_ops()->StoreKv(*pass, device_k.view(), device_v.view(), kv.view(), kLayer);
    const std::span<const uint8_t> stored = pass->stored_layers();
    ASSERT_EQ(stored.size(), kLayer + 1u);
    for (int layer = 0; layer <= kLayer; ++layer) EXPECT_EQ(stored[layer], layer == kLayer ? 1 : 0);

    const KvLayer& arrays = kv.view().layers[kLayer];
    for (int r = 0; r < 3; ++r) {
      const int slot = plan.slots[r];
      for (int head = 0; head < shape.kv_heads; ++head) {
        const auto expected = [&](const std::vector<float>& values) {
          return Rounded(shape, std::span(values).subspan(r * cols + head * shape.head_dim));
        };
        const auto stored = [&](const void* blocks, const void* staged) {
          return slot < 0 ? Staged(kv, staged, r, head) : Slot(kv, blocks, slot, head);
        };
        EXPECT_TRUE(SameBits(stored(arrays.k_blocks, arrays.k_staged), expected(k)));
        EXPECT_TRUE(SameBits(stored(arrays.v_blocks, arrays.v_staged), expected(v)));
      }
    }
    EXPECT_EQ(CountNumbers(kv, arrays.k_blocks), 2 * cols);
    EXPECT_EQ(CountNumbers(kv, arrays.v_blocks), 2 * cols);
    EXPECT_EQ(CountNumbers(kv, kv.view().layers[0].k_blocks), 0);
  }
}

// Row 0 of each case is stored as codes times 2^exponent, and bf16 represents that exactly.
TEST_P(KvOpsTest, QuantisedVectorsHaveThePowerOfTwoThatFits) {
  struct Case {
    DType dtype;
    std::vector<float> vector;
    std::vector<float> stored;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> all_nan(4, nan);
  const Case cases[] = {
      {DType::kI8, {127, -1.5f, 2.5f, 0.49f}, {127, -2, 2, 0}},
      {DType::kI8, {127.1f, -1.5f, 3, 0.49f}, {128, -2, 4, 0}},
      {DType::kI8, {-63.5f, 0.25f, 0.75f, 1}, {-63.5f, 0, 1, 1}},
      {DType::kI8, {0x1p-130f, 0, 0x1p-120f, -0x1p-126f}, {0, 0, 0x1p-120f, 0}},
      {DType::kI8, {0, 0, 0, 0}, {0, 0, 0, 0}},
      {DType::kI8, {1, nan, 2, 3}, all_nan},
      {DType::kI8, {1, 2, -INFINITY, 3}, all_nan},
      {DType::kF8E4M3, {448, -1.0625f, 1.1875f, 0.3f}, {448, -1, 1.25f, 0.3125f}},
      {DType::kF8E4M3, {449, 0x1p-6f, -0x1.8p-7f, 0x1p-5f}, {448, 0, -0.0f, 0x1p-5f}},
      {DType::kF8E4M3, {224, 0x1p-7f, 0x1.8p-8f, -0x1p-8f}, {224, 0x1p-7f, 0x1p-7f, -0.0f}},
      {DType::kF8E4M3, {0x1p-130f, 0, 0x1p-126f, -0x1p-120f}, {0, 0, 0x1p-126f, -0x1p-120f}},
      {DType::kF8E4M3, {nan, 1, 2, 3}, all_nan},
      {DType::kF8E4M3, {1, 2, 3, INFINITY}, all_nan},
  };
  for (const Case& c : cases) {
    KvShape shape = SmallShape(c.dtype);
    shape.kv_heads = 1;
    shape.head_dim = 4;
    const DeviceKv kv(*backend_, KvImage(shape, kLayer));
    const PassPlan plan{.tokens = {0},
                        .positions = {0},
                        .slots = {9},
                        .prefix_len = {1},
                        .sequence_rows = {0, 1},
                        .block_offsets = {0, 1},
                        .block_ids = {1},
                        .ancestors = {0}};
    const auto pass = backend_->NewPass(1);
    backend_->LoadPass(plan, shape, pass.get());
    const DeviceMatrix k(*backend_, 1, 4, c.vector);
    backend_->kv_ops()->StoreKv(*pass, k.view(), k.view(), kv.view(), kLayer);
    for (const void* array :
         {kv.view().layers[kLayer].k_blocks, kv.view().layers[kLayer].v_blocks}) {
      const std::vector<float> stored = Slot(kv, array, 9, 0);
      EXPECT_EQ(MaxDifference(stored, c.stored), 0)
          << DTypeName(c.dtype) << " " << c.vector[0] << ": " << stored[0] << " " << stored[1]
          << " " << stored[2] << " " << stored[3];
      for (const float value : stored) {
        if (std::isnan(value)) continue;
        EXPECT_EQ(F32FromBF16(BF16FromF32(value)), value);
      }
    }
  }
}

TEST_P(KvOpsTest, CommitRowsCopiesStagedRowsOfTheLayersAsked) {
  for (const DType dtype : kKvTypes) {
    const KvShape shape = SmallShape(dtype);
    KvImage image(shape, kLayer);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int row = 0; row < shape.staging_rows; ++row) image.WriteStaged(row, head, 100 + row);
    }
    const DeviceKv kv(*backend_, image);
    const std::vector<int32_t> rows = {0, 2, 5};
    const std::vector<int32_t> slots = {39, 0, 17};
    backend_->kv_ops()->CommitRows(kv.view(), rows, slots, 1);  // layer 0 only
    EXPECT_EQ(CountNumbers(kv, kv.view().layers[kLayer].k_blocks), 0);
    backend_->kv_ops()->CommitRows(kv.view(), rows, slots, 2);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(SlotHolds(kv, image, slots[i], 100 + rows[i])) << i;
    EXPECT_EQ(CountNumbers(kv, kv.view().layers[kLayer].v_blocks),
              3 * shape.kv_heads * shape.head_dim);
  }
}

TEST_P(KvOpsTest, CopySlotsRunsInOrder) {
  for (const DType dtype : kKvTypes) {
    const KvShape shape = SmallShape(dtype);
    KvImage image(shape, kLayer);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int slot = 0; slot < 10; ++slot) image.WriteSlot(slot, head, slot);
    }
    const DeviceKv kv(*backend_, image);
    // A compaction to the left: each source is overwritten only by later copies.
    backend_->kv_ops()->CopySlots(kv.view(), std::vector<int32_t>{3, 5, 5, 9},
                                  std::vector<int32_t>{1, 3, 5, 4});
    const int64_t expected[] = {0, 3, 2, 5, 9, 5, 6, 7, 8, 9};
    for (int slot = 0; slot < 10; ++slot) {
      EXPECT_TRUE(SlotHolds(kv, image, slot, expected[slot])) << slot;
    }
  }
}

TEST_P(KvOpsTest, CopyStagedRunsInOrder) {
  for (const DType dtype : kKvTypes) {
    const KvShape shape = SmallShape(dtype);
    KvImage image(shape, kLayer);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int row = 0; row < shape.staging_rows; ++row) image.WriteStaged(row, head, row);
    }
    const DeviceKv kv(*backend_, image);
    backend_->kv_ops()->CopyStaged(kv.view(), std::vector<int32_t>{1, 3, 5},
                                   std::vector<int32_t>{1, 2, 3});
    const int64_t expected[] = {0, 1, 3, 5, 4, 5};
    const KvLayer& arrays = kv.view().layers[kLayer];
    for (int row = 0; row < shape.staging_rows; ++row) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        EXPECT_TRUE(SameBits(Staged(kv, arrays.k_staged, row, head),
                             image.Values(expected[row], head, false)));
        EXPECT_TRUE(SameBits(Staged(kv, arrays.v_staged, row, head),
                             image.Values(expected[row], head, true)));
      }
    }
  }
}

TEST_P(KvOpsTest, CopyBlockCopiesTheFirstTokensOnly) {
  for (const DType dtype : kKvTypes) {
    const KvShape shape = SmallShape(dtype);
    KvImage image(shape, kLayer);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int slot = 0; slot < shape.block_size; ++slot) image.WriteSlot(8 + slot, head, slot);
    }
    const DeviceKv kv(*backend_, image);
    backend_->kv_ops()->CopyBlock(kv.view(), 1, 4, 5);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(SlotHolds(kv, image, 32 + i, i)) << i;
    EXPECT_EQ(CountNumbers(kv, kv.view().layers[kLayer].k_blocks),
              (8 + 5) * shape.kv_heads * shape.head_dim);
  }
}

TEST_P(KvOpsTest, CopyTilesTakesOtherBlocksForEveryHead) {
  for (const DType dtype : kKvTypes) {
    const KvShape shape = SmallShape(dtype);
    KvImage image(shape, kLayer);
    for (int slot = 0; slot < shape.num_blocks * shape.block_size; ++slot) {
      for (int head = 0; head < shape.kv_heads; ++head) image.WriteSlot(slot, head, slot);
    }
    const DeviceKv from(*backend_, image);
    const DeviceKv to(*backend_, KvImage(shape, kLayer));
    constexpr int kCount = 2, kFirst = 3;
    std::vector<int32_t> blocks;
    const auto block_of = [&](int list, int i) { return (2 * list + i) % shape.num_blocks; };
    for (int list = 0; list < shape.num_layers * shape.kv_heads; ++list) {
      for (int i = 0; i < kCount; ++i) blocks.push_back(block_of(list, i));
    }
    backend_->kv_ops()->CopyTiles(from.view(), blocks, to.view(), kFirst);
    backend_->kv_ops()->JoinCopies();
    const KvLayer& arrays = to.view().layers[kLayer];
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int i = 0; i < kCount * shape.block_size; ++i) {
        const int block = block_of(kLayer * shape.kv_heads + head, i / shape.block_size);
        const int64_t content = block * shape.block_size + i % shape.block_size;
        const int slot = kFirst * shape.block_size + i;
        EXPECT_TRUE(
            SameBits(Slot(to, arrays.k_blocks, slot, head), image.Values(content, head, false)));
        EXPECT_TRUE(
            SameBits(Slot(to, arrays.v_blocks, slot, head), image.Values(content, head, true)));
      }
    }
    EXPECT_EQ(CountNumbers(to, arrays.k_blocks),
              kCount * shape.block_size * shape.kv_heads * shape.head_dim);
  }
}

TEST_P(KvOpsTest, NewMemoryIsZeroAndAligned) {
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{5} << 20}) {
    auto buffer = backend_->Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    std::vector<uint8_t> contents(bytes, 1);
    backend_->CopyOut(contents.data(), buffer->data(), bytes);
    EXPECT_EQ(std::accumulate(contents.begin(), contents.end(), 0), 0) << bytes;
  }
  EXPECT_EQ(backend_->Allocate(SIZE_MAX - 1000).status().code(), StatusCode::kResourceExhausted);
}

INSTANTIATE_TEST_SUITE_P(Backends, KvOpsTest,
                         ::testing::ValuesIn(testing::WithDevices({"reference", "cpu1", "cpu2"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace talon
