// Attention of the CUDA backend in tiles of every number of queries, thus by every variant of the
// prefix kernel: the bits of a row in random batches, for every type of K and V on tensor cores.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compute/attention_testing.h"
#include "compute/cuda/cuda_backend.h"

namespace talon {
namespace {

using testing::Chain;
using testing::ExpectSameBits;
using testing::Layout;
using testing::Outputs;
using testing::RandomTree;
using testing::RunAttention;
using testing::SequenceSpec;

int Uniform(int low, int high, std::mt19937& random) {
  return low + static_cast<int>(random() % (high - low + 1));
}
int LogUniform(int low, int high, std::mt19937& random) {
  const double share = static_cast<double>(random()) / static_cast<double>(std::mt19937::max());
  return static_cast<int>(low * std::pow(static_cast<double>(high) / low, share));
}

SequenceSpec RandomSequence(std::mt19937& random) {
  SequenceSpec spec{.committed = LogUniform(1, 1500, random)};
  const int rows = LogUniform(1, 80, random);
  switch (random() % 4) {
    case 0:
      spec.prompt_rows = std::min(rows, spec.committed);
      break;
    case 1:
      spec.parents = Chain(rows);
      spec.tail = Uniform(0, rows - 1, random);
      break;
    default:
      spec.parents = RandomTree(rows, random);
      spec.in_slots = random() % 4 == 0;
  }
  spec.partial = spec.prompt_rows == 0 && random() % 3 == 0;
  return spec;
}

struct RandomCase {
  Layout layout;
  std::vector<SequenceSpec> batch;
};

RandomCase MakeCase(DType dtype, std::mt19937& random) {
  RandomCase made{.layout = {.dtype = dtype,
                             .head_dim = 16 * Uniform(1, 8, random),
                             .kv_heads = Uniform(1, 2, random),
                             .group = Uniform(1, 8, random),
                             .block_size = 8 << random() % 4,
                             .sinks = random() % 4 == 0}};
  for (int i = Uniform(1, 4, random); i > 0; --i) {
    made.batch.push_back(RandomSequence(random));
    made.batch.back().base = 10000 * i;
  }
  return made;
}

// A quantised cache against the same numbers in bf16, too.
Outputs Expected(Backend& backend, RandomCase given) {
  if (IsQuantisedKv(given.layout.dtype)) {
    given.layout.numbers = given.layout.dtype;
    given.layout.dtype = DType::kBF16;
  }
  return RunAttention(backend, given.layout, given.batch);
}

// Not instantiated without a device.
class AttentionTilesTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    for (const int tile : {16, 32, 64, 128, 256}) {
      tiles_.push_back(NewCudaBackend({.attention_tile = tile}).value());
    }
  }
  void ExpectSameBitsInAllTiles(const RandomCase& made) {
    const Outputs expected = Expected(*tiles_[0], made);
    for (const auto& backend : tiles_) {
      ExpectSameBits(expected, RunAttention(*backend, made.layout, made.batch), made.layout.Name());
    }
  }

  std::vector<std::unique_ptr<Backend>> tiles_;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionTilesTest);

TEST_P(AttentionTilesTest, RandomBatchesHaveTheSameBitsInEveryTile) {
  for (int seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    ExpectSameBitsInAllTiles(MakeCase(GetParam(), random));
  }
}

// Scales of codes reach far beyond those of ordinary values.
TEST_P(AttentionTilesTest, ValuesOfAnySizeHaveTheSameBitsInEveryTile) {
  if (GetParam() == DType::kF16) GTEST_SKIP() << "f16 ends at 65504";
  for (const int exponent : {-120, -60, 14, 17, 60, 100}) {
    std::mt19937 random(exponent + 200);
    RandomCase made = MakeCase(GetParam(), random);
    made.layout.value_magnitude = std::ldexp(1.0f, exponent);
    ExpectSameBitsInAllTiles(made);
  }
}

std::vector<DType> TypesOnDevice() {
  if (NumCudaDevices() == 0) return {};
  return {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kI8};
}
INSTANTIATE_TEST_SUITE_P(KvTypes, AttentionTilesTest, ::testing::ValuesIn(TypesOnDevice()),
                         [](const auto& info) {
                           return "cuda_" + std::string(DTypeName(info.param));
                         });

}  // namespace
}  // namespace talon
