#include "compute/trees/tree_testing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compute/backend_testing.h"

namespace talon::testing {

// A pass of `trees` sequences with `rows` rows each, all unknown, below `above` nodes.
PassPlan OutlinePlan(int trees, int rows, int above) {
  PassPlan plan;
  plan.sequence_rows = {0};
  plan.block_offsets = {0};
  plan.mask_words = 2;
  for (int t = 0; t < trees; ++t) {
    for (int r = 0; r < rows; ++r) {
      plan.tokens.push_back(t + 1);
      plan.positions.push_back(100 * t + std::min(r, 9));
      plan.slots.push_back(-1);
      plan.prefix_len.push_back(0);
      // The largest possible number of ancestors.
      uint64_t mask[2] = {};
      for (int bit = 0; bit <= above + r; ++bit) mask[bit / 64] |= uint64_t{1} << (bit % 64);
      plan.ancestors.insert(plan.ancestors.end(), mask, mask + 2);
    }
    plan.nodes_before.push_back(above);
    plan.staging_first.push_back(64 * t);
    plan.sequence_rows.push_back(plan.num_rows());
    plan.block_offsets.push_back(0);
  }
  return plan;
}

namespace {

// Tokens, positions and masks of a loaded pass, as its ops see them.
struct RowContents {
  std::vector<float> tokens;
  std::vector<float> positions;  // sines
  std::vector<float> attended;   // [rows][kTreeShape.head_dim] weight of each of the pass's nodes
};

RowContents ReadRows(Backend& backend, const Pass& pass, int rows, int rows_per_tree) {
  std::vector<float> ids(kTreeVocabulary);
  for (int i = 0; i < kTreeVocabulary; ++i) ids[i] = static_cast<float>(i);
  const DeviceArray table(backend, ids);
  const DeviceMatrix tokens(backend, rows, 1);
  backend.Embed(pass, table.data(), DType::kF32, tokens.view());
  const DeviceArray frequency(backend, std::vector<float>{0.001f});
  const DeviceMatrix angles(backend, rows, 2);
  backend.RopeAngles(pass, frequency.floats(), 1, 1.0f, angles.view());
  Buffer k = std::move(backend.Allocate(kTreeShape.RowBytes() * kTreeShape.staging_rows)).value();
  Buffer v = std::move(backend.Allocate(kTreeShape.RowBytes() * kTreeShape.staging_rows)).value();
  Buffer block = std::move(backend.Allocate(kTreeShape.BlockBytes())).value();  // never read
  const KvLayer layer{.k_blocks = block.data(),
                      .v_blocks = block.data(),
                      .k_staged = k.data(),
                      .v_staged = v.data()};
  const KvView kv{kTreeShape, {&layer, 1}};
  std::vector<float> one_hot(static_cast<size_t>(rows) * kTreeShape.head_dim);
  for (int r = 0; r < rows; ++r) one_hot[r * kTreeShape.head_dim + r % rows_per_tree] = 1;
  const DeviceMatrix zeros(backend, rows, kTreeShape.head_dim);
  const DeviceMatrix values(backend, rows, kTreeShape.head_dim, one_hot);
  backend.kv_ops()->StoreKv(pass, zeros.view(), values.view(), kv, 0);
  const DeviceMatrix out(backend, rows, kTreeShape.head_dim);
  backend.layer_ops()->Attention(pass, {.q = zeros.view(), .kv = kv}, out.view());
  return {tokens.Read(), angles.Read(), out.Read()};
}

}  // namespace

void ExpectSameRows(Backend& backend, const Pass& pass, const PassPlan& plan, int rows_per_tree) {
  const int rows = plan.num_rows();
  const RowContents got = ReadRows(backend, pass, rows, rows_per_tree);
  const auto host = MakeBackend("reference");
  const auto wanted_pass = host->NewPass(1);
  host->LoadPass(plan, kTreeShape, wanted_pass.get());
  const RowContents want = ReadRows(*host, *wanted_pass, rows, rows_per_tree);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_LT(testing::MaxDifference(got.positions, want.positions), 1e-5);
  EXPECT_LT(testing::MaxDifference(got.attended, want.attended), 4e-3);
}

}  // namespace talon::testing
