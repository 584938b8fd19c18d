// Ops that a device may fuse, against the reference: the MLP, products with the norm in front of
// them, and the QKV product that rotates and stores heads.
#include <gtest/gtest.h>

#include <random>

#include "compute/backend_testing.h"
#include "compute/kv/kv_testing.h"

namespace talon {
namespace {

using testing::DeviceArray;
using testing::DeviceKv;
using testing::DeviceMatrix;
using testing::KvImage;
using testing::LargestMagnitude;
using testing::MakeBackend;
using testing::MaxDifference;
using testing::RandomValues;

std::unique_ptr<Weight> NewWeight(Backend& backend, int rows, int cols, uint64_t seed,
                                  WeightFormat format) {
  const std::vector<float> values = RandomValues(int64_t{rows} * cols, seed, 0.05f);
  const HostMatrix part{values.data(), DType::kF32, rows, cols};
  auto weight = backend.PackWeight({&part, 1}, format);
  EXPECT_TRUE(weight.ok()) << weight.status().message();
  return std::move(weight).value();
}

class FusedOpsTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
  std::unique_ptr<Backend> reference_ = MakeBackend("reference");
};

struct MlpShape {
  int hidden;
  int ffn;
  int outputs;
  int rows;
  WeightFormat format;
};

// x += MLP(x), twice in a row, then a product with the norm of x: the stream and that product.
std::vector<float> RunMlps(Backend& backend, const MlpShape& shape) {
  const int hidden = shape.hidden;
  const auto gate_up = NewWeight(backend, 2 * shape.ffn, hidden, 1, shape.format);
  const auto down = NewWeight(backend, hidden, shape.ffn, 2, shape.format);
  const auto gate_up2 = NewWeight(backend, 2 * shape.ffn, hidden, 3, shape.format);
  const auto down2 = NewWeight(backend, hidden, shape.ffn, 4, shape.format);
  const auto last = NewWeight(backend, shape.outputs, hidden, 5, shape.format);
  const DeviceArray norm(backend, RandomValues(hidden, 6));
  const DeviceArray norm2(backend, RandomValues(hidden, 7));
  const DeviceArray norm3(backend, RandomValues(hidden, 8));
  const DeviceArray bias(backend, RandomValues(hidden, 9, 0.1f));
  const DeviceMatrix x(backend, shape.rows, hidden, RandomValues(shape.rows * hidden, 10, 3.0f));
  const DeviceMatrix out(backend, shape.rows, shape.outputs);
  backend.FeedForward(x.view(), norm.floats(), 1e-5f,
                      {gate_up.get(), nullptr, down.get(), bias.floats()});
  backend.FeedForward(x.view(), norm2.floats(), 1e-5f,
                      {gate_up2.get(), nullptr, down2.get(), nullptr});
  backend.MatMul({.x = x.view(),
                  .norm = norm3.floats(),
                  .epsilon = 1e-5f,
                  .w = last.get(),
                  .out = out.view()});
  std::vector<float> all = out.Read();
  const std::vector<float> stream = x.Read();
  all.insert(all.end(), stream.begin(), stream.end());
  return all;
}

TEST_P(FusedOpsTest, NormsBetweenProductsMatchReference) {
  using enum WeightFormat;
  const MlpShape shapes[] = {
      {128, 1024, 333, 1, kBF16},   {128, 1024, 333, 16, kBF16}, {128, 1024, 333, 17, kBF16},
      {128, 1024, 333, 128, kBF16}, {384, 768, 96, 5, kBF16},    {384, 768, 96, 70, kBF16},
      {200, 1100, 333, 3, kBF16},   {200, 1100, 333, 33, kBF16}, {128, 1024, 128, 8, kF16},
      {256, 192, 64, 130, kF16},    {256, 1024, 64, 11, kInt8},  {512, 4096, 64, 2, kBF16},
      {256, 1024, 64, 11, kInt4},   {200, 1100, 333, 3, kInt4},  {256, 6400, 12700, 1, kBF16},
      {256, 6400, 12700, 16, kF16}};
  for (const MlpShape& shape : shapes) {
    const std::vector<float> expected = RunMlps(*reference_, shape);
    const std::vector<float> actual = RunMlps(*backend_, shape);
    EXPECT_LE(MaxDifference(expected, actual), LargestMagnitude(expected) / 64)
        << shape.hidden << " " << shape.ffn << ", rows " << shape.rows << ", "
        << WeightFormatName(shape.format);
  }
}

struct QkvShape {
  int hidden;
  int heads;
  int kv_heads;
  int head_dim;
  int rotated;
  int rows;
  bool norms;
  DType cache;
};

// q, then the staged K and V.
std::vector<float> RunQkv(Backend& backend, const QkvShape& shape) {
  const int q_cols = shape.heads * shape.head_dim;
  const int kv_cols = shape.kv_heads * shape.head_dim;
  const int cols = q_cols + 2 * kv_cols;
  const KvShape kv_shape{.num_layers = 1,
                         .kv_heads = shape.kv_heads,
                         .head_dim = shape.head_dim,
                         .dtype = shape.cache,
                         .num_blocks = 4,
                         .staging_rows = shape.rows};
  KvImage image(kv_shape, 0);
  std::mt19937 random(5);
  const PassPlan plan = testing::BuildPass(
      {{.committed = 20, .parents = testing::RandomTree(shape.rows, random)}}, random, &image);
  const DeviceKv kv(backend, image);
  const auto pass = backend.NewPass(shape.heads);
  backend.LoadPass(plan, kv_shape, pass.get());
  const auto weight = NewWeight(backend, cols, shape.hidden, 1, WeightFormat::kBF16);
  const DeviceArray norm(backend, RandomValues(shape.hidden, 2));
  const DeviceArray head_norm(backend, RandomValues(shape.head_dim, 3));
  const DeviceArray bias(backend, RandomValues(cols, 4));
  const DeviceMatrix x(backend, shape.rows, shape.hidden,
                       RandomValues(shape.rows * shape.hidden, 11));
  const DeviceMatrix angles(backend, shape.rows, shape.rotated,
                            RandomValues(shape.rows * shape.rotated, 12));
  const DeviceMatrix out(backend, shape.rows, cols);
  const MatrixView q = out.view().Cols(0, q_cols);
  const float* norms = shape.norms ? head_norm.floats() : nullptr;
  backend.ProjectQkv(*pass,
                     {x.view(), norm.floats(), 1e-5f, weight.get(), bias.floats(), out.view()},
                     {q, out.view().Cols(q_cols, kv_cols),
                      out.view().Cols(q_cols + kv_cols, kv_cols), norms, norms, 1e-5f},
                     angles.view(), kv.view(), 0);
  std::vector<float> all;
  const std::vector<float> rows = out.Read();
  for (int r = 0; r < shape.rows; ++r) {
    all.insert(all.end(), rows.begin() + r * cols, rows.begin() + r * cols + q_cols);
  }
  for (const void* array : {kv.view().layers[0].k_staged, kv.view().layers[0].v_staged}) {
    const std::vector<float> staged = kv.ReadStaged(backend, array);
    all.insert(all.end(), staged.begin(), staged.end());
  }
  return all;
}

TEST_P(FusedOpsTest, QkvProductMatchesReference) {
  const QkvShape shapes[] = {{1024, 4, 2, 128, 128, 1, false, DType::kBF16},
                             {1024, 4, 2, 128, 128, 16, false, DType::kBF16},
                             {1024, 4, 2, 64, 64, 9, false, DType::kF16},
                             {1280, 3, 1, 64, 64, 33, false, DType::kBF16},
                             {1024, 4, 2, 128, 64, 5, false, DType::kBF16},
                             {1024, 4, 2, 128, 128, 5, true, DType::kBF16},
                             {1024, 4, 2, 96, 96, 5, false, DType::kF32},
                             {600, 6, 3, 32, 32, 12, false, DType::kF32},
                             {1024, 8, 8, 64, 64, 64, false, DType::kBF16},
                             {1024, 4, 2, 128, 128, 1, false, DType::kF8E4M3},
                             {1024, 4, 2, 128, 128, 16, false, DType::kI8},
                             {1280, 3, 1, 64, 64, 33, false, DType::kF8E4M3},
                             {1024, 4, 2, 128, 64, 5, true, DType::kI8},
                             {600, 6, 3, 32, 32, 12, false, DType::kF8E4M3},
                             {1024, 8, 8, 64, 64, 64, false, DType::kI8}};
  for (const QkvShape& shape : shapes) {
    const std::vector<float> expected = RunQkv(*reference_, shape);
    const std::vector<float> actual = RunQkv(*backend_, shape);
    // A product that is a little off may get the next code, 1/16 or more than 1/128 further on.
    const double part = shape.cache == DType::kF8E4M3 ? 12 : shape.cache == DType::kI8 ? 32 : 64;
    EXPECT_LE(MaxDifference(expected, actual), LargestMagnitude(expected) / part)
        << DTypeName(shape.cache) << " hidden " << shape.hidden << ", head_dim " << shape.head_dim
        << ", rows " << shape.rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FusedOpsTest,
                         ::testing::ValuesIn(testing::WithDevices({"cpu2"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace talon
