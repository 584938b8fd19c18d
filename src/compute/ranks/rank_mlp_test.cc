// MLPs that several ranks share: the bits are those of one, on every device. The ranks are threads,
// and on CUDA share the GPU.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "compute/backend.h"
#include "compute/backend_testing.h"
#include "compute/cuda/cuda_backend.h"
#include "compute/ranks/local_ranks.h"
#include "compute/ranks/segments.h"

namespace talon::testing {
namespace {

struct MlpShape {
  int hidden = 0;
  int ffn = 0;
  int unit = 0;  // segments are multiples of it
};

std::unique_ptr<Backend> MakeRankBackend(const std::string& name, int ranks) {
  if (!IsDevice(name)) return MakeBackend(name);
  auto backend = NewCudaBackend({.sharers = ranks});
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return std::move(backend).value();
}

// A whole MLP on the host.
struct HostMlp {
  explicit HostMlp(const MlpShape& shape_in)
      : shape(shape_in),
        gate(RandomValues(int64_t{shape.ffn} * shape.hidden, 1, 0.05f)),
        up(RandomValues(int64_t{shape.ffn} * shape.hidden, 2, 0.05f)),
        down(RandomValues(int64_t{shape.hidden} * shape.ffn, 3, 0.05f)),
        bias(RandomValues(shape.hidden, 4)),
        norm(RandomValues(shape.hidden, 5)),
        bounds(SegmentBounds(shape.ffn, shape.unit)) {}

  MlpShape shape;
  std::vector<float> gate, up, down, bias, norm;
  std::vector<int> bounds;
};

// Columns [range) of a matrix of `cols` columns.
std::vector<float> TakeColumns(const std::vector<float>& matrix, int cols, IndexRange range) {
  std::vector<float> part;
  for (size_t row = 0; row < matrix.size() / cols; ++row) {
    const auto begin = matrix.begin() + static_cast<int64_t>(row) * cols;
    part.insert(part.end(), begin + range.first, begin + range.last);
  }
  return part;
}

// What rows become in a rank's part of the MLP.
std::vector<std::vector<float>> RunRank(Backend& backend, const HostMlp& mlp, WeightFormat format,
                                        Ranks* ranks, const std::vector<std::vector<float>>& xs) {
  const int rank = ranks == nullptr ? 0 : ranks->rank();
  const int size = ranks == nullptr ? 1 : ranks->size();
  const auto& [hidden, ffn, unit] = mlp.shape;
  const IndexRange own = InputsOf(mlp.bounds, rank, size);
  const HostMatrix gate_up[] = {
      {.data = mlp.gate.data() + int64_t{own.first} * hidden, .rows = own.count(), .cols = hidden},
      {.data = mlp.up.data() + int64_t{own.first} * hidden, .rows = own.count(), .cols = hidden}};
  const std::vector<float> columns = TakeColumns(mlp.down, ffn, own);
  HostMatrix down{.data = columns.data(), .rows = hidden, .cols = own.count()};
  std::vector<int> bounds = OwnBounds(mlp.bounds, rank, size);
  if (backend.info().rank_split == RankSplit::kOutputs) {
    const std::vector<int> outputs = EvenBounds(hidden, size);
    down = {.data = mlp.down.data() + int64_t{outputs[rank]} * ffn,
            .rows = outputs[rank + 1] - outputs[rank],
            .cols = ffn};
    bounds = RankBounds(mlp.bounds, size);
  }
  const auto packed_gate_up = backend.PackWeight(gate_up, format, {.whole_rows = 2 * ffn});
  const auto packed_down =
      backend.PackWeight({&down, 1}, format, {.bounds = bounds, .whole_rows = hidden});
  EXPECT_TRUE(packed_gate_up.ok() && packed_down.ok());
  const DeviceArray norm(backend, mlp.norm);
  const DeviceArray bias(backend, mlp.bias);
  std::vector<std::vector<float>> results;
  for (const std::vector<float>& x : xs) {
    const DeviceMatrix rows(backend, static_cast<int>(x.size()) / hidden, hidden, x);
    backend.FeedForward(rows.view(), norm.floats(), 1e-5f,
                        {.gate_up = packed_gate_up->get(),
                         .down = packed_down->get(),
                         .down_bias = bias.floats(),
                         .ranks = ranks});
    results.push_back(rows.Read());
  }
  return results;
}

using RankMlpParam = std::tuple<std::string, WeightFormat>;

class RankMlpTest : public ::testing::TestWithParam<RankMlpParam> {
 protected:
  void ExpectTheBitsOfOne(const MlpShape& shape) const {
    const auto& [name, format] = GetParam();
    const HostMlp mlp(shape);
    std::vector<std::vector<float>> xs;
    for (const int rows : {1, 7, 70, 300}) xs.push_back(RandomValues(rows * shape.hidden, rows));
    const auto whole = MakeRankBackend(name, 1);
    const auto expected = RunRank(*whole, mlp, format, nullptr, xs);
    // Rows alone have the bits that they have among others.
    const std::vector<float> first(xs[3].begin(), xs[3].begin() + shape.hidden);
    const auto alone = RunRank(*whole, mlp, format, nullptr, {first})[0];
    EXPECT_EQ(alone, std::vector<float>(expected[3].begin(), expected[3].begin() + shape.hidden));
    for (const int size : {2, 4, 8}) {
      const auto ranks = LocalRanks::Create(size);
      std::vector<std::unique_ptr<Backend>> backends;
      for (int rank = 0; rank < size; ++rank) backends.push_back(MakeRankBackend(name, size));
      std::vector<std::vector<std::vector<float>>> results(size);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
          results[rank] = RunRank(*backends[rank], mlp, format, ranks[rank].get(), xs);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (int rank = 0; rank < size; ++rank) {
        for (size_t i = 0; i < xs.size(); ++i) {
          EXPECT_EQ(results[rank][i], expected[i]) << rank << " of " << size << ", rows " << i;
        }
      }
    }
  }
};

// One device has SwiGLU of quantised weights in the epilogue, ranks have not.
TEST_P(RankMlpTest, PartsThatAreNotWholeTilesOfADevice) {
  ExpectTheBitsOfOne({.hidden = 200, .ffn = 384, .unit = 32});
}

// So few outputs for so many inputs that a device cuts the inputs of both products.
TEST_P(RankMlpTest, InputsThatADeviceCuts) {
  const bool device = IsDevice(std::get<0>(GetParam()));
  ExpectTheBitsOfOne({.hidden = device ? 2048 : 256, .ffn = 1024, .unit = 128});
}

std::string NameOfRankMlp(const ::testing::TestParamInfo<RankMlpParam>& info) {
  const auto& [name, format] = info.param;
  return fmt::format("{}_{}", name, WeightFormatName(format));
}

INSTANTIATE_TEST_SUITE_P(
    Devices, RankMlpTest,
    ::testing::Combine(::testing::ValuesIn(WithDevices({"cpu1"})),
                       ::testing::Values(WeightFormat::kF32, WeightFormat::kBF16,
                                         WeightFormat::kInt8, WeightFormat::kFp8,
                                         WeightFormat::kInt4)),
    NameOfRankMlp);

}  // namespace
}  // namespace talon::testing
