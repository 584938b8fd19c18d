#include "compute/attention_testing.h"

#include <algorithm>
#include <cmath>

namespace talon::testing {
namespace {

// Queries are named by what their row is: the same token has the same query in every layout.
std::vector<float> QueriesOf(const PassPlan& plan, int cols) {
  std::vector<float> queries;
  for (const int32_t token : plan.tokens) {
    const std::vector<float> row = RandomValues(cols, 777777 + token);
    queries.insert(queries.end(), row.begin(), row.end());
  }
  return queries;
}

// Relative to the largest value: sums of head_dim products in float32 move a score by its magnitude
// (about |q| |k| / sqrt(head_dim), here sqrt(head_dim)) times a few epsilons; kernels that round
// queries and probabilities to 16 bits do so by 2^-9 (bf16) or 2^-12 (f16) of the same.
double Tolerance(const Layout& layout, bool rounds_to_cache_type) {
  double unit = KvValueType(layout.dtype) == DType::kBF16 ? 1.0 / 512 : 1.0 / (1 << 22);
  if (layout.dtype == DType::kF16 && rounds_to_cache_type) unit = 1.0 / (1 << 12);
  return 4 * unit * std::sqrt(static_cast<double>(layout.head_dim));
}

// A chain of `trunk` nodes with a random tree under its end.
std::vector<int> TrunkAndTree(int trunk, int nodes, std::mt19937& random) {
  std::vector<int> parents = Chain(trunk);
  for (const int parent : RandomTree(nodes, random)) parents.push_back(trunk + parent);
  return parents;
}

}  // namespace

std::string Layout::Name() const {
  return fmt::format("{} head_dim {} kv_heads {} group {} block {}{} window {}{}", DTypeName(dtype),
                     head_dim, kv_heads, group, block_size, partial ? " partial" : "", window,
                     sinks ? " sinks" : "");
}

KvShape ShapeFor(const Layout& layout, const std::vector<SequenceSpec>& sequences) {
  KvShape shape{.num_layers = 2,
                .kv_heads = layout.kv_heads,
                .head_dim = layout.head_dim,
                .block_size = layout.block_size,
                .dtype = layout.dtype};
  for (const SequenceSpec& spec : sequences) {
    const int nodes = static_cast<int>(spec.parents.size());
    shape.num_blocks += layout.kv_heads * (spec.committed / layout.block_size + 1) + nodes + 2;
    shape.staging_rows += spec.prompt_rows + nodes;
  }
  return shape;
}

Outputs RunAttention(Backend& backend, const Layout& layout, std::vector<SequenceSpec> sequences,
                     uint32_t seed) {
  std::mt19937 random(seed);
  for (SequenceSpec& spec : sequences) spec.partial |= layout.partial && spec.prompt_rows == 0;
  const KvShape shape = ShapeFor(layout, sequences);
  KvImage image(shape, kLayer, layout.numbers.value_or(layout.dtype), layout.value_magnitude);
  const PassPlan plan = BuildPass(sequences, random, &image);
  const DeviceKv kv(backend, image);
  const DeviceMatrix q(backend, plan.num_rows(), layout.cols(), QueriesOf(plan, layout.cols()));
  const DeviceMatrix out(backend, plan.num_rows(), layout.cols());
  const auto pass = backend.NewPass(layout.kv_heads * layout.group);
  backend.LoadPass(plan, shape, pass.get());
  const float scale = 1.0f / std::sqrt(static_cast<float>(layout.head_dim));
  const DeviceArray sinks(backend, RandomValues(layout.kv_heads * layout.group, 99, 4.0f));
  backend.layer_ops()->Attention(*pass,
                                 {.q = q.view(),
                                  .kv = kv.view(),
                                  .layer = kLayer,
                                  .scale = scale,
                                  .window = layout.window,
                                  .sinks = layout.sinks ? sinks.floats() : nullptr},
                                 out.view());
  Outputs outputs;
  const std::vector<float> values = out.Read();
  for (int r = 0; r < plan.num_rows(); ++r) {
    outputs[plan.tokens[r]] = RowOf(values, r, layout.cols());
  }
  return outputs;
}

void ExpectClose(const Outputs& expected, const Outputs& actual, const Layout& layout,
                 const std::string& backend) {
  for (const auto& [content, row] : expected) {
    ASSERT_TRUE(actual.contains(content));
    const double bound =
        Tolerance(layout, IsDevice(backend)) * std::max(1.0, LargestMagnitude(row));
    EXPECT_LE(MaxDifference(row, actual.at(content)), bound)
        << layout.Name() << " content " << content;
  }
}

void ExpectSameBits(const Outputs& expected, const Outputs& actual, const std::string& what) {
  int compared = 0;
  for (const auto& [content, row] : actual) {
    const auto found = expected.find(content);
    if (found == expected.end()) continue;
    ++compared;
    EXPECT_TRUE(SameBits(found->second, row)) << what << ", content " << content;
  }
  EXPECT_GT(compared, 0) << what;
}

void ExpectBitsOfAnyPlace(Backend& backend, const Layout& layout, int tokens,
                          std::initializer_list<int> ends) {
  const Outputs whole =
      RunAttention(backend, layout, {{.committed = tokens, .prompt_rows = tokens}});
  for (const int end : ends) {
    const SequenceSpec part{.committed = end, .prompt_rows = 5};
    ExpectSameBits(whole, RunAttention(backend, layout, {part}, end), "chunk");
    const SequenceSpec chain{.committed = end - 8, .parents = Chain(8)};
    ExpectSameBits(whole, RunAttention(backend, layout, {chain}, end), "staged");
    const SequenceSpec tail{
        .committed = end - 100, .parents = Chain(100), .tail = 95, .partial = true};
    ExpectSameBits(whole, RunAttention(backend, layout, {tail}, end), "tail");
  }
}

std::vector<SequenceSpec> MixedBatch(std::mt19937& random) {
  std::vector<SequenceSpec> batch;
  batch.push_back({.base = 0, .committed = 75, .parents = RandomTree(9, random)});
  batch.push_back({.base = 10000, .committed = 130, .prompt_rows = 70});
  batch.push_back({.base = 20000, .committed = 0, .parents = RandomTree(5, random)});
  batch.push_back({.base = 30000, .committed = 7, .prompt_rows = 7});
  batch.push_back({.base = 40000, .committed = 64, .parents = {-1}});
  batch.push_back(
      {.base = 50000, .committed = 33, .parents = RandomTree(17, random), .in_slots = true});
  batch.push_back(
      {.base = 60000, .committed = 90, .parents = TrunkAndTree(30, 12, random), .tail = 30});
  batch.push_back({.base = 61000,
                   .committed = 141,
                   .parents = TrunkAndTree(75, 20, random),
                   .tail = 75,
                   .partial = true});
  batch.push_back({.base = 62000, .committed = 90, .parents = TrunkAndTree(40, 9, random)});
  return batch;
}

std::vector<ReferenceCase> MakeReferenceCases(const std::vector<Layout>& layouts, uint32_t seed,
                                              const MakeBatch& make_batch) {
  const auto reference = MakeBackend("reference");
  std::mt19937 random(seed);
  std::vector<ReferenceCase> cases;
  for (const Layout& layout : layouts) {
    const std::vector<SequenceSpec> batch = make_batch(random);
    cases.push_back({layout, batch, RunAttention(*reference, layout, batch)});
  }
  return cases;
}

void ExpectSameBitsAlone(Backend& backend, const Layout& layout,
                         const std::vector<SequenceSpec>& batch) {
  const Outputs together = RunAttention(backend, layout, batch);
  for (const SequenceSpec& spec : batch) {
    ExpectSameBits(together, RunAttention(backend, layout, {spec}, 99), layout.Name());
  }
}

}  // namespace talon::testing
