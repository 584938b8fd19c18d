// Experts on every backend that has them: against the reference, and the bits of a row whatever the
// other rows chose.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compute/backend.h"
#include "compute/backend_testing.h"
#include "compute/host/host_experts.h"
#include "compute/mxfp4.h"

namespace talon {
namespace {

using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::LargestMagnitude;
using testing::MakeBackend;
using testing::MaxDifference;
using testing::RandomValues;
using testing::SameBits;

constexpr int kHidden = 320;
constexpr int kFfn = 672;
constexpr int kExperts = 8;

struct Kind {
  std::string name;
  WeightFormat format = WeightFormat::kAsStored;
  DType stored = DType::kF32;
  double tolerance = 1e-5;
  ExpertRule rule;
};

std::vector<Kind> Kinds() {
  const ExpertRule gpt{.per_row = 3, .gate_limit = 7};
  const ExpertRule plain{.per_row = 2, .normalised = false};
  return {{"f32", WeightFormat::kAsStored, DType::kF32, 1e-5, plain},
          {"f32 clamped", WeightFormat::kAsStored, DType::kF32, 1e-5, gpt},
          {"bf16", WeightFormat::kAsStored, DType::kBF16, 0.02, plain},
          {"int8", WeightFormat::kInt8, DType::kF32, 0.05, plain},
          {"mxfp4", WeightFormat::kAsStored, DType::kMxfp4, 1e-3, gpt},
          {"mxfp4 beside int8", WeightFormat::kInt8, DType::kMxfp4, 1e-3, plain},
          {"all experts", WeightFormat::kF32, DType::kF32, 1e-5, {.per_row = kExperts}}};
}

// Random bytes are codes; exponents are near 1.
struct HostData {
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> scales;
  HostMatrix matrix;

  HostData(DType dtype, int rows, int cols, uint64_t seed) {
    const std::vector<float> values = RandomValues(int64_t{rows} * cols, seed, 0.3f);
    if (dtype == DType::kMxfp4) {
      for (size_t i = 0; i < values.size() / 2; ++i) {
        bytes.push_back(static_cast<uint8_t>(static_cast<int>(values[i] * 1e4f)));
      }
      for (size_t i = 0; i < values.size() / kMxfp4Group; ++i) {
        scales.push_back(static_cast<uint8_t>(124 + (static_cast<int>(values[i] * 1e4f) & 1)));
      }
    } else {
      bytes.resize(values.size() * DTypeSize(dtype));
      for (size_t i = 0; i < values.size(); ++i) {
        StoreElement(bytes.data(), dtype, static_cast<int64_t>(i), values[i]);
      }
    }
    matrix = {.data = bytes.data(),
              .dtype = dtype,
              .rows = rows,
              .cols = cols,
              .scales = scales.empty() ? nullptr : scales.data()};
  }
};

// One sparse layer in a backend's memory.
class Layer {
 public:
  // Experts from `broken` on are NaN.
  Layer(Backend& backend, const Kind& kind, int broken = kExperts)
      : backend_(backend),
        norm_(backend, RandomValues(kHidden, 1)),
        router_bias_(backend, RouterBias(broken)),
        router_(Pack(HostData(DType::kF32, kExperts, kHidden, 3).matrix, WeightFormat::kF32)) {
    for (int e = 0; e < kExperts; ++e) {
      const HostData gate_up(kind.stored, 2 * kFfn, kHidden, 100 + e);
      const HostData down(kind.stored, kHidden, kFfn, 200 + e);
      packed_.push_back(Pack(gate_up.matrix, kind.format));
      packed_.push_back(Pack(down.matrix, kind.format));
      const float value = e < broken ? 0.1f : std::numeric_limits<float>::quiet_NaN();
      biases_.emplace_back(backend, std::vector<float>(2 * kFfn, value));
      biases_.emplace_back(backend, std::vector<float>(kHidden, value));
      experts_.push_back({packed_[2 * e].get(), biases_[2 * e].floats(), packed_[2 * e + 1].get(),
                          biases_[2 * e + 1].floats()});
    }
    auto prepared = backend.expert_ops()->Prepare(experts_);
    EXPECT_TRUE(prepared.ok()) << prepared.status().message();
    prepared_ = std::move(prepared).value();
    weights_ = {router_.get(), router_bias_.floats(), experts_, prepared_.data(), kind.rule};
  }

  std::vector<float> Run(const std::vector<float>& rows) const {
    const DeviceMatrix x(backend_, static_cast<int>(rows.size()) / kHidden, kHidden, rows);
    backend_.expert_ops()->FeedForward(x.view(), norm_.floats(), 1e-5f, weights_);
    return x.Read();
  }

 private:
  // Broken experts are never chosen.
  static std::vector<float> RouterBias(int broken) {
    std::vector<float> bias = RandomValues(kExperts, 2, 0.1f);
    for (int e = broken; e < kExperts; ++e) bias[e] = -1e9f;
    return bias;
  }
  std::unique_ptr<Weight> Pack(const HostMatrix& part, WeightFormat format) {
    auto weight = backend_.PackWeight({&part, 1}, format, {.expert = true});
    EXPECT_TRUE(weight.ok()) << weight.status().message();
    return std::move(weight).value();
  }

  Backend& backend_;
  DeviceArray norm_;
  DeviceArray router_bias_;
  std::unique_ptr<Weight> router_;
  std::vector<std::unique_ptr<Weight>> packed_;
  std::vector<DeviceArray> biases_;
  std::vector<FeedForwardWeights> experts_;
  Buffer prepared_;
  ExpertsWeights weights_;
};

class ExpertsTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
};

std::vector<float> RowsToCompare() { return RandomValues(37 * kHidden, 5); }

// What the reference makes of them, for each kind. It is slow, so all backends share it.
const std::vector<std::vector<float>>& ReferenceOutputs() {
  static const std::vector<std::vector<float>> outputs = [] {
    const auto reference = MakeBackend("reference");
    std::vector<std::vector<float>> all;
    for (const Kind& kind : Kinds()) all.push_back(Layer(*reference, kind).Run(RowsToCompare()));
    return all;
  }();
  return outputs;
}

TEST_P(ExpertsTest, MatchesReference) {
  const std::vector<float> rows = RowsToCompare();
  const std::vector<Kind> kinds = Kinds();
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Kind& kind = kinds[i];
    const std::vector<float>& expected = ReferenceOutputs()[i];
    const std::vector<float> actual = Layer(*backend_, kind).Run(rows);
    // A device rounds activations to bf16 unless the weights are f32.
    const bool rounds = testing::IsDevice(GetParam()) && kind.tolerance > 1e-5;
    const double tolerance = rounds ? std::max(kind.tolerance, 0.02) : kind.tolerance;
    EXPECT_LE(MaxDifference(expected, actual), tolerance * LargestMagnitude(expected)) << kind.name;
    EXPECT_GT(MaxDifference(expected, rows), 0.1) << kind.name;
  }
}

TEST_P(ExpertsTest, RowOfManyHasTheSameBitsAlone) {
  for (const Kind& kind : Kinds()) {
    const Layer layer(*backend_, kind);
    const std::vector<float> rows = RandomValues(50 * kHidden, 6);
    const std::vector<float> together = layer.Run(rows);
    const std::vector<float> some = layer.Run({rows.begin(), rows.begin() + 13 * kHidden});
    for (int r = 0; r < 50; ++r) {
      const std::vector<float> alone = layer.Run(testing::RowOf(rows, r, kHidden));
      EXPECT_TRUE(SameBits(alone, testing::RowOf(together, r, kHidden)))
          << kind.name << " row " << r;
      if (r >= 13) continue;
      EXPECT_TRUE(SameBits(alone, testing::RowOf(some, r, kHidden))) << kind.name << " row " << r;
    }
  }
}

TEST_P(ExpertsTest, ExpertsThatNoRowChoseTakeNoPart) {
  for (const Kind& kind : Kinds()) {
    if (kind.rule.per_row == kExperts) continue;
    const std::vector<float> out =
        Layer(*backend_, kind, /*broken=*/4).Run(RandomValues(20 * kHidden, 7));
    for (const float value : out) ASSERT_TRUE(std::isfinite(value)) << kind.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ExpertsTest,
                         ::testing::ValuesIn(testing::WithDevices({"cpu1", "cpu2", "cpu3"})),
                         [](const auto& info) { return info.param; });

TEST(ChooseExperts, TakesTheLargestAndTheLowestOfEquals) {
  const std::vector<float> logits = {1, 3, 2, 3, std::nanf(""), 0};
  std::vector<ExpertChoice> choices(3);
  ChooseExperts(logits, {.per_row = 3}, choices);
  EXPECT_EQ(choices[0].expert, 1);
  EXPECT_EQ(choices[1].expert, 3);
  EXPECT_EQ(choices[2].expert, 2);
  const float sum = 2 + std::exp(-1.0f);
  EXPECT_FLOAT_EQ(choices[0].weight, 1 / sum);
  EXPECT_FLOAT_EQ(choices[2].weight, std::exp(-1.0f) / sum);
}

TEST(ChooseExperts, WeightsMayBeThoseOfAllExperts) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  std::vector<ExpertChoice> choices(2);
  ChooseExperts(logits, {.per_row = 2, .normalised = false}, choices);
  EXPECT_EQ(choices[0].expert, 2);
  EXPECT_FLOAT_EQ(choices[0].weight, 5.0f / 8);
  EXPECT_FLOAT_EQ(choices[1].weight, 2.0f / 8);
}

TEST(ExpertRows, HasEachRowOnceForEachOfItsExperts) {
  std::vector<float> logits = RandomValues(20 * 7, 8);
  ExpertRows rows;
  rows.Build({logits.data(), 20, 7, 7}, {.per_row = 3});
  std::vector<int> times(20);
  std::vector<float> total(20);
  for (int e = 0; e < 7; ++e) {
    ASSERT_EQ(rows.rows(e).size(), rows.weights(e).size());
    for (size_t i = 0; i < rows.rows(e).size(); ++i) {
      EXPECT_TRUE(i == 0 || rows.rows(e)[i - 1] < rows.rows(e)[i]);
      ++times[rows.rows(e)[i]];
      total[rows.rows(e)[i]] += rows.weights(e)[i];
    }
  }
  for (int r = 0; r < 20; ++r) {
    EXPECT_EQ(times[r], 3);
    EXPECT_NEAR(total[r], 1, 1e-6);
  }
}

TEST(Mxfp4, ExpandsCodesLowHalfFirst) {
  std::vector<uint8_t> codes(32, 0);
  codes[0] = 0x21;   // 0.5, 1
  codes[1] = 0xF7;   // 6, -6
  codes[16] = 0x0B;  // -1.5, 0
  const std::vector<uint8_t> scales = {127, 130};
  std::vector<float> values(64);
  ExpandMxfp4(codes.data(), scales.data(), 64, values.data());
  EXPECT_EQ(values[0], 0.5f);
  EXPECT_EQ(values[1], 1);
  EXPECT_EQ(values[2], 6);
  EXPECT_EQ(values[3], -6);
  EXPECT_EQ(values[32], -12);
  EXPECT_EQ(values[63], 0);
}

TEST(Mxfp4, RefusesWhatIsNotWholeGroups) {
  const auto backend = MakeBackend("cpu1");
  std::vector<uint8_t> data(1024);
  const HostMatrix ragged{
      .data = data.data(), .dtype = DType::kMxfp4, .rows = 2, .cols = 33, .scales = data.data()};
  EXPECT_FALSE(backend->PackWeight({&ragged, 1}, WeightFormat::kAsStored).ok());
  const HostMatrix no_scales{.data = data.data(), .dtype = DType::kMxfp4, .rows = 2, .cols = 32};
  EXPECT_FALSE(backend->PackWeight({&no_scales, 1}, WeightFormat::kAsStored).ok());
}

}  // namespace
}  // namespace talon
