// Every op of every backend against the reference, and the bits of a row alone against the same row
// among others. Attention has its own file, attention_test.cc.
#include "compute/backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "base/math.h"
#include "compute/backend_testing.h"

namespace talon {
namespace {

using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::kInfinity;
using testing::LargestMagnitude;
using testing::MakeBackend;
using testing::MaxDifference;
using testing::RandomValues;
using testing::RowOf;
using testing::SameBits;

constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A pass of `rows` tokens with no keys but themselves.
PassPlan SimplePlan(int rows) {
  PassPlan plan;
  for (int r = 0; r < rows; ++r) {
    plan.tokens.push_back((r * 7) % 19);
    plan.positions.push_back(r * 1001);
    plan.slots.push_back(-1);
    plan.prefix_len.push_back(0);
    plan.ancestors.push_back(uint64_t{1} << r);
  }
  plan.sequence_rows = {0, rows};
  plan.block_offsets = {0, 0};
  return plan;
}

std::unique_ptr<Pass> LoadPlan(Backend& backend, const PassPlan& plan) {
  const KvShape shape{.num_layers = 1, .kv_heads = 1, .head_dim = 8};
  auto pass = backend.NewPass(/*query_heads=*/1);
  backend.LoadPass(plan, shape, pass.get());
  return pass;
}

// One op as a function of a matrix, run on rows [first, first + count) of `input`.
struct OpCase {
  std::string name;
  int in_cols = 0;
  int out_cols = 0;
  double tolerance = 0;  // relative to the largest magnitude of the expected output
  std::function<std::vector<float>(Backend&, const std::vector<float>& input, int first, int count)>
      run;
};

OpCase RmsNormCase(int cols) {
  return {fmt::format("RmsNorm{}", cols), cols, cols, 8 * kEpsilon * std::sqrt(cols),
          [cols](Backend& backend, const std::vector<float>& input, int, int count) {
            const DeviceMatrix x(backend, count, cols, input);
            const DeviceArray weight(backend, RandomValues(cols, 11));
            const DeviceMatrix out(backend, count, cols);
            backend.layer_ops()->RmsNorm(x.view(), weight.floats(), 1e-5f, out.view());
            return out.Read();
          }};
}

OpCase RmsNormHeadsCase(int heads, int head_dim) {
  const int cols = heads * head_dim;
  return {fmt::format("RmsNormHeads{}x{}", heads, head_dim), cols, cols, 64 * kEpsilon,
          [=](Backend& backend, const std::vector<float>& input, int, int count) {
            const DeviceMatrix x(backend, count, cols, input);
            const DeviceArray weight(backend, RandomValues(head_dim, 12));
            backend.layer_ops()->RmsNormHeads(x.view(), head_dim, weight.floats(), 1e-6f);
            return x.Read();
          }};
}

OpCase RopeCase(int heads, int head_dim, int half) {
  const int cols = heads * head_dim;
  return {fmt::format("Rope{}x{}h{}", heads, head_dim, half), cols, cols, 8 * kEpsilon,
          [=](Backend& backend, const std::vector<float>& input, int first, int count) {
            PassPlan plan = SimplePlan(count);
            for (int r = 0; r < count; ++r) plan.positions[r] = (first + r) * 1001;
            const auto pass = LoadPlan(backend, plan);
            std::vector<float> frequencies(half);
            for (int i = 0; i < half; ++i) frequencies[i] = std::pow(10000.0f, -1.0f * i / half);
            const DeviceArray inv_freq(backend, frequencies);
            const DeviceMatrix angles(backend, count, 2 * half);
            const DeviceMatrix x(backend, count, cols, input);
            backend.RopeAngles(*pass, inv_freq.floats(), half, 1.25f, angles.view());
            backend.layer_ops()->Rope(x.view(), head_dim, angles.view());
            return x.Read();
          }};
}

OpCase SwiGluCase(int cols) {
  return {fmt::format("SwiGlu{}", cols), 2 * cols, cols, 16 * kEpsilon,
          [cols](Backend& backend, const std::vector<float>& input, int, int count) {
            const DeviceMatrix x(backend, count, 2 * cols, input);
            const DeviceMatrix out(backend, count, cols);
            backend.layer_ops()->SwiGlu(x.view(), out.view());
            return out.Read();
          }};
}

OpCase ClampedGateCase(int cols) {
  return {fmt::format("ClampedGate{}", cols), 2 * cols, cols, 16 * kEpsilon,
          [cols](Backend& backend, const std::vector<float>& input, int, int count) {
            const DeviceMatrix x(backend, count, 2 * cols, input);
            const DeviceMatrix out(backend, count, cols);
            backend.layer_ops()->ClampedGate(x.view(), 0.75f, out.view());
            return out.Read();
          }};
}

OpCase MatMulCase(WeightFormat format, DType stored, double tolerance, bool accumulate,
                  int in = 136, int out_cols = 75) {
  return {fmt::format("MatMul_{}_{}{}", WeightFormatName(format), DTypeName(stored),
                      accumulate ? "_accumulate" : ""),
          in, out_cols, tolerance,
          [=](Backend& backend, const std::vector<float>& input, int, int count) {
            const std::vector<float> values = RandomValues(out_cols * in, 13);
            std::vector<uint8_t> data(values.size() * DTypeSize(stored));
            for (size_t i = 0; i < values.size(); ++i) {
              StoreElement(data.data(), stored, static_cast<int64_t>(i), values[i]);
            }
            const HostMatrix parts[] = {
                {data.data(), stored, 64, in},
                {data.data() + 64 * in * DTypeSize(stored), stored, out_cols - 64, in}};
            auto weight = backend.PackWeight(parts, format);
            EXPECT_TRUE(weight.ok()) << weight.status().message();
            const DeviceArray bias(backend, RandomValues(out_cols, 14));
            const DeviceMatrix x(backend, count, in, input);
            const DeviceMatrix out(backend, count, out_cols,
                                   std::vector<float>(count * out_cols, 0.5f));
            backend.MatMul({.x = x.view(),
                            .w = weight->get(),
                            .bias = accumulate ? nullptr : bias.floats(),
                            .out = out.view(),
                            .accumulate = accumulate});
            return out.Read();
          }};
}

OpCase EmbedCase(DType dtype) {
  constexpr int kCols = 37;
  constexpr int kVocabulary = 19;
  return {fmt::format("Embed_{}", DTypeName(dtype)), 1, kCols, 0,
          [=](Backend& backend, const std::vector<float>&, int first, int count) {
            PassPlan plan = SimplePlan(first + count);
            plan.tokens.erase(plan.tokens.begin(), plan.tokens.begin() + first);
            PassPlan rows = SimplePlan(count);
            rows.tokens = plan.tokens;
            const auto pass = LoadPlan(backend, rows);
            const std::vector<float> values = RandomValues(kVocabulary * kCols, 15);
            std::vector<uint8_t> data(values.size() * DTypeSize(dtype));
            for (size_t i = 0; i < values.size(); ++i) {
              StoreElement(data.data(), dtype, static_cast<int64_t>(i), values[i]);
            }
            const DeviceArray table(backend, data);
            const DeviceMatrix out(backend, count, kCols);
            backend.Embed(*pass, table.data(), dtype, out.view());
            return out.Read();
          }};
}

std::vector<OpCase> Cases(const std::string& backend) {
  std::vector<OpCase> cases = {
      RmsNormCase(256),        RmsNormCase(7),         RmsNormCase(2049),
      RmsNormHeadsCase(3, 64), RopeCase(2, 64, 32),    RopeCase(3, 80, 16),
      RopeCase(1, 12, 5),      SwiGluCase(704),        SwiGluCase(5),
      RmsNormHeadsCase(2, 20), EmbedCase(DType::kF32), EmbedCase(DType::kF16),
      EmbedCase(DType::kBF16)};
  // Weights as stored differ from the reference by the order of sums, and where activations are
  // rounded to 16 bits by that rounding; int8 may round an activation at a tie the other way.
  constexpr double kSum = 64 * kEpsilon;
  if (!testing::IsDevice(backend)) {  // has no experts
    cases.push_back(ClampedGateCase(704));
    cases.push_back(ClampedGateCase(5));
  }
  constexpr double kHalf = 1.0 / 256;
  for (const bool accumulate : {false, true}) {
    cases.push_back(MatMulCase(WeightFormat::kF32, DType::kF32, kSum, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kF16, DType::kF32, kHalf, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kBF16, DType::kF32, kHalf, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kInt8, DType::kF32, kHalf, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kAsStored, DType::kF32, kSum, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kAsStored, DType::kBF16, kHalf, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kInt8, DType::kF16, kHalf, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kFp8, DType::kF32, kHalf, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kInt4, DType::kF32, kHalf, accumulate));
    cases.push_back(MatMulCase(WeightFormat::kInt4, DType::kBF16, kHalf, accumulate));
  }
  return cases;
}

class OpTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
  std::unique_ptr<Backend> reference_ = MakeBackend("reference");
};

TEST_P(OpTest, MatchesReference) {
  constexpr int kRows = 9;
  for (const OpCase& op : Cases(GetParam())) {
    const std::vector<float> input = RandomValues(kRows * op.in_cols, 21);
    const std::vector<float> expected = op.run(*reference_, input, 0, kRows);
    const std::vector<float> actual = op.run(*backend_, input, 0, kRows);
    ASSERT_EQ(static_cast<int>(expected.size()), kRows * op.out_cols) << op.name;
    // On devices activations are not quantised.
    const bool finer = testing::IsDevice(GetParam()) && op.name.find("_int") != std::string::npos;
    const double tolerance = finer ? 1.0 / 64 : op.tolerance;
    EXPECT_LE(MaxDifference(expected, actual), tolerance * LargestMagnitude(expected)) << op.name;
  }
}

TEST_P(OpTest, RowAloneHasTheSameBits) {
  constexpr int kRows = 33;  // enough for the threads to share the work
  for (const OpCase& op : Cases(GetParam())) {
    const std::vector<float> input = RandomValues(kRows * op.in_cols, 22);
    const std::vector<float> together = op.run(*backend_, input, 0, kRows);
    for (const int r : {0, 1, 16, 32}) {
      const std::vector<float> alone = op.run(*backend_, RowOf(input, r, op.in_cols), r, 1);
      const std::vector<float> beside = RowOf(together, r, op.out_cols);
      EXPECT_TRUE(SameBits(alone, beside)) << op.name << " row " << r;
    }
  }
}

// More rows than any tile has, and so many inputs that few outputs share them out.
TEST_P(OpTest, RowOfManyHasTheSameBitsAlone) {
  constexpr int kRows = 200;
  for (const bool accumulate : {false, true}) {
    const OpCase op = MatMulCase(WeightFormat::kBF16, DType::kF32, 0, accumulate, 2048, 192);
    const std::vector<float> input = RandomValues(kRows * op.in_cols, 26);
    const std::vector<float> together = op.run(*backend_, input, 0, kRows);
    for (const int r : {0, 63, 64, 127, 128, 199}) {
      const std::vector<float> alone = op.run(*backend_, RowOf(input, r, op.in_cols), r, 1);
      EXPECT_TRUE(SameBits(alone, RowOf(together, r, op.out_cols))) << op.name << " row " << r;
    }
  }
}

TEST_P(OpTest, ThreadCountDoesNotChangeBits) {
  constexpr int kRows = 40;
  const auto one = MakeBackend(testing::OnOneThread(GetParam()));
  for (const OpCase& op : Cases(GetParam())) {
    const std::vector<float> input = RandomValues(kRows * op.in_cols, 23);
    EXPECT_TRUE(SameBits(op.run(*one, input, 0, kRows), op.run(*backend_, input, 0, kRows)))
        << op.name;
  }
}

TEST_P(OpTest, RmsNormWorksInPlace) {
  const std::vector<float> input = RandomValues(3 * 100, 24);
  const DeviceArray weight(*backend_, RandomValues(100, 25));
  const DeviceMatrix x(*backend_, 3, 100, input);
  const DeviceMatrix out(*backend_, 3, 100);
  backend_->layer_ops()->RmsNorm(x.view(), weight.floats(), 1e-5f, out.view());
  backend_->layer_ops()->RmsNorm(x.view(), weight.floats(), 1e-5f, x.view());
  EXPECT_TRUE(SameBits(x.Read(), out.Read()));
}

TEST_P(OpTest, SwiGluStaysFiniteAtExtremes) {
  const DeviceMatrix x(*backend_, 1, 10, std::vector<float>{-200, -90, 0, 90, 200, 1, 1, 1, 1, 1});
  const DeviceMatrix out(*backend_, 1, 5);
  backend_->layer_ops()->SwiGlu(x.view(), out.view());
  const std::vector<float> y = out.Read();
  EXPECT_NEAR(y[0], 0, 1e-30);
  EXPECT_NEAR(y[1], 0, 1e-30);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 90);
  EXPECT_EQ(y[4], 200);
}

TEST_P(OpTest, GatherRowsRepeatsAndReorders) {
  const std::vector<float> input = RandomValues(5 * 21, 26);
  const DeviceMatrix x(*backend_, 5, 21, input);
  const DeviceMatrix out(*backend_, 4, 21);
  const std::vector<int32_t> rows = {4, 0, 0, 3};
  backend_->GatherRows(x.view(), rows, out.view());
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(SameBits(RowOf(out.Read(), i, 21), RowOf(input, rows[i], 21))) << i;
  }
}

TEST_P(OpTest, CopyRowsKeepsOtherRows) {
  const std::vector<float> input = RandomValues(5 * 21, 26);
  const std::vector<float> before = RandomValues(6 * 21, 27);
  const DeviceMatrix x(*backend_, 5, 21, input);
  const DeviceMatrix out(*backend_, 6, 21, before);
  backend_->CopyRows(x.view(), std::vector<int32_t>{4, 0, 0}, out.view(),
                     std::vector<int32_t>{1, 5, 2});
  const std::vector<int> sources = {-1, 4, 0, -1, -1, 0};
  for (int i = 0; i < 6; ++i) {
    const auto wanted = sources[i] < 0 ? RowOf(before, i, 21) : RowOf(input, sources[i], 21);
    EXPECT_TRUE(SameBits(RowOf(out.Read(), i, 21), wanted)) << i;
  }
}

TEST_P(OpTest, ArgmaxTakesTheLowestOfEqualsAndNeverNan) {
  constexpr int kCols = 1003;
  std::vector<float> values = RandomValues(5 * kCols, 27);
  const auto row = [&](int r) { return values.begin() + r * kCols; };
  row(0)[1002] = 100;
  row(1)[501] = row(1)[77] = row(1)[1001] = 50;
  row(2)[0] = kNan;
  row(2)[300] = 60;
  row(2)[301] = kNan;
  std::fill(row(3), row(4), kNan);
  std::fill(row(4), values.end(), -kInfinity);
  row(4)[0] = kNan;
  const DeviceMatrix x(*backend_, 5, kCols, values);
  std::vector<int32_t> best(5, -1);
  backend_->token_ops()->Argmax(x.view(), best);
  EXPECT_EQ(best, (std::vector<int32_t>{1002, 77, 300, 0, 1}));
}

TEST_P(OpTest, MaskRowsForbidsWhatHasNoBitAndLeavesNan) {
  for (const int cols : {1, 64, 65, 4099, 128256}) {
    std::mt19937_64 random(cols);
    std::vector<float> values = RandomValues(5 * cols, 29);
    values[3 * cols] = kNan;
    const std::vector<int32_t> rows = {3, 0, 4};
    const int words = CeilDiv(cols, 64);
    std::vector<uint64_t> masks(rows.size() * words);
    for (uint64_t& word : masks) word = random() % 3 == 0 ? ~uint64_t{0} : random();
    masks[0] &= ~uint64_t{1};
    const DeviceMatrix x(*backend_, 5, cols, values);
    backend_->token_ops()->MaskRows(x.view(), rows, masks);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int c = 0; c < cols; ++c) {
        float& value = values[rows[i] * cols + c];
        const bool allowed = (masks[i * words + c / 64] >> (c % 64) & 1) != 0;
        if (!allowed && !std::isnan(value)) value = -kInfinity;
      }
    }
    EXPECT_TRUE(SameBits(x.Read(), values)) << cols;
  }
}

TEST_P(OpTest, TopKMatchesReference) {
  for (const int cols : {1, 5, 64, 1003}) {
    const std::vector<float> values = RandomValues(6 * cols, 28, 4.0f);
    for (const int k : {1, std::min(cols, 8), std::min(cols, 100)}) {
      std::vector<TopKEntry> expected(6 * k);
      std::vector<TopKEntry> actual(6 * k);
      const DeviceMatrix x(*reference_, 6, cols, values);
      const DeviceMatrix y(*backend_, 6, cols, values);
      reference_->token_ops()->TopK(x.view(), k, expected);
      backend_->token_ops()->TopK(y.view(), k, actual);
      for (int i = 0; i < 6 * k; ++i) {
        EXPECT_EQ(actual[i].id, expected[i].id) << cols << " " << k << " " << i;
        EXPECT_NEAR(actual[i].log_prob, expected[i].log_prob, 1e-5) << cols << " " << k;
      }
    }
  }
}

TEST_P(OpTest, TopKBreaksTiesByIdAndReportsNan) {
  std::vector<float> values(4 * 50, 0.0f);
  values[30] = values[10] = 2;  // row 0: a tie at the top, then all equal
  values[50 + 7] = kNan;        // row 1 holds NaN
  values[100 + 9] = kInfinity;  // row 2 holds infinity
  std::fill(values.begin() + 150, values.end(), -kInfinity);
  values[150 + 3] = 1;  // row 3: one possible token
  const DeviceMatrix x(*backend_, 4, 50, values);
  std::vector<TopKEntry> out(4 * 4);
  backend_->token_ops()->TopK(x.view(), 4, out);
  const int ids[] = {10, 30, 0, 1};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i].id, ids[i]);
  EXPECT_EQ(out[0].log_prob, out[1].log_prob);
  for (int i = 4; i < 12; ++i) EXPECT_TRUE(std::isnan(out[i].log_prob)) << i;
  EXPECT_EQ(out[12].id, 3);
  EXPECT_EQ(out[12].log_prob, 0);
  EXPECT_EQ(out[13].log_prob, -kInfinity);
}

TEST_P(OpTest, PackWeightRefusesPartsThatDisagree) {
  const std::vector<float> values(64);
  const HostMatrix disagree[] = {{values.data(), DType::kF32, 2, 8},
                                 {values.data(), DType::kF32, 2, 16}};
  EXPECT_EQ(backend_->PackWeight(disagree, WeightFormat::kF32).status().code(),
            StatusCode::kInvalidArgument);
  const HostMatrix integers[] = {{values.data(), DType::kI32, 2, 8}};
  EXPECT_EQ(backend_->PackWeight(integers, WeightFormat::kF32).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(backend_->PackWeight({}, WeightFormat::kF32).status().code(),
            StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Backends, OpTest,
                         ::testing::ValuesIn(testing::WithDevices({"reference", "cpu1", "cpu2",
                                                                   "cpu3"})),
                         [](const auto& info) { return info.param; });

// A captured graph depends on a cache's arrays and shape, its size included.
TEST(KvIdentity, TellsCachesApart) {
  std::vector<float> memory(8);
  KvLayer layer{.k_blocks = memory.data(), .v_blocks = memory.data() + 1};
  KvView view{.shape = {.num_layers = 1, .kv_heads = 2, .num_blocks = 10, .staging_rows = 4},
              .layers = {&layer, 1}};
  const uint64_t identity = IdentityOf(view);
  EXPECT_EQ(IdentityOf(view), identity);
  const auto differs = [&](const std::function<void(KvView*)>& change) {
    KvView other = view;
    change(&other);
    return IdentityOf(other) != identity;
  };
  EXPECT_TRUE(differs([](KvView* kv) { ++kv->shape.num_blocks; }));
  EXPECT_TRUE(differs([](KvView* kv) { ++kv->shape.staging_rows; }));
  EXPECT_TRUE(differs([](KvView* kv) { kv->shape.dtype = DType::kBF16; }));
  layer.key_norm = memory.data() + 2;
  EXPECT_NE(IdentityOf(view), identity);
}

TEST(WeightFormat, NamesRoundTrip) {
  for (const WeightFormat format :
       {WeightFormat::kAsStored, WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16,
        WeightFormat::kFp8, WeightFormat::kInt8, WeightFormat::kInt4}) {
    WeightFormat parsed = WeightFormat::kF32;
    EXPECT_TRUE(ParseWeightFormat(WeightFormatName(format), &parsed));
    EXPECT_EQ(parsed, format);
  }
  WeightFormat unchanged = WeightFormat::kInt8;
  EXPECT_FALSE(ParseWeightFormat("int3", &unchanged));
  EXPECT_EQ(unchanged, WeightFormat::kInt8);
  EXPECT_EQ(WeightFormatNames(), "auto, f32, f16, bf16, fp8, int8 or int4");
}

}  // namespace
}  // namespace talon
