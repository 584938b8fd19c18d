#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "compute/cuda/experts/cuda_expert_ops.h"
#include "compute/cuda/experts/work.h"
#include "compute/cuda/gemm/mxfp4_tiles.h"
#include "compute/cuda/gemm/weight.h"

namespace talon::cuda {
namespace {

const CudaWeight& WeightOf(const Weight* weight) { return static_cast<const CudaWeight&>(*weight); }

bool IsAlike(const CudaWeight& a, const CudaWeight& b) {
  return a.dtype() == b.dtype() && a.rows() == b.rows() && a.cols() == b.cols();
}

ExpertMatrix MatrixOf(const Weight* weight, const float* bias) {
  return {WeightOf(weight).data(), WeightOf(weight).scales(), bias};
}

// Pairs of a tile, at most: few where few rows come to an expert, because each tile computes all of
// its columns. A second tile of an expert reads its matrix again, from the L2 cache, which is
// dearer than columns unless they are scaled group by group.
int TilePairs(DType dtype, int rows, int per_row, int experts) {
  if (rows <= 8 || (dtype == DType::kMxfp4 && rows * per_row <= 4 * experts)) return 8;
  return rows * per_row <= 8 * experts ? 16 : 32;
}

// Cuts one allocation into arrays.
class Cutter {
 public:
  template <typename T>
  size_t Add(int64_t count) {
    const size_t at = bytes_;
    bytes_ += RoundUp(count * sizeof(T), 16);
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

Routes CutRoutes(Scratch* scratch, int64_t rows, int64_t experts, int64_t slots) {
  Cutter cutter;
  const size_t logits = cutter.Add<float>(rows * experts);
  const size_t chosen = cutter.Add<int32_t>(slots);
  const size_t weights = cutter.Add<float>(slots);
  const size_t pairs = cutter.Add<int32_t>(slots);
  const size_t tiles = cutter.Add<ExpertTile>(slots);
  const size_t num_tiles = cutter.Add<int32_t>(1);
  auto* base = static_cast<uint8_t*>(scratch->Get(cutter.bytes()));
  return {.logits = reinterpret_cast<float*>(base + logits),
          .experts = reinterpret_cast<int32_t*>(base + chosen),
          .weights = reinterpret_cast<float*>(base + weights),
          .pairs = reinterpret_cast<int32_t*>(base + pairs),
          .tiles = reinterpret_cast<ExpertTile*>(base + tiles),
          .num_tiles = reinterpret_cast<int32_t*>(base + num_tiles)};
}

void LaunchProduct(const Stream& stream, DType dtype, const ExpertProduct& product, bool gated,
                   int tile_pairs, int items) {
  switch (dtype) {
    case DType::kF32:
      return LaunchExpertsF32(stream, product, gated, tile_pairs, items);
    case DType::kF16:
      return LaunchExpertsF16(stream, product, gated, tile_pairs, items);
    case DType::kBF16:
      return LaunchExpertsBF16(stream, product, gated, tile_pairs, items);
    case DType::kI8:
      return LaunchExpertsInt8(stream, product, gated, tile_pairs, items);
    default:
      TALON_CHECK(dtype == DType::kMxfp4);
      LaunchExpertsMxfp4(stream, product, gated, tile_pairs, items);
  }
}

// What rows are multiplied with before they are rounded and meet weights of this type.
float RowFactor(DType dtype) { return dtype == DType::kMxfp4 ? kMxfp4RowFactor : 1.0f; }

int PaddedInputs(int cols) { return CeilDiv(cols, kChunkInputs) * kChunkInputs; }

// The product with down of what the one with gate_up gives.
ExpertProduct DownProduct(const ExpertProduct& activated, const CudaWeight& down, float* results) {
  ExpertProduct product = activated;
  product.x = activated.out;
  product.x_stride = activated.out_stride;
  product.inputs = down.cols();
  product.outputs = down.rows();
  product.matrix_rows = down.rows();
  product.row_bytes = down.row_bytes();
  product.scale_stride = down.scale_stride();
  product.out = results;
  product.out_stride = down.rows();
  return product;
}

}  // namespace

Result<Buffer> CudaExpertOps::Prepare(std::span<const FeedForwardWeights> experts) {
  TALON_CHECK(!experts.empty());
  if (experts.size() > kMaxExperts) {
    return Unimplemented("cuda: {} experts, at most {} are supported", experts.size(), kMaxExperts);
  }
  const CudaWeight& first = WeightOf(experts[0].gate_up);
  if (first.dtype() == DType::kMxfp4 && first.rows() % (2 * kMxfp4TileRows) != 0) {
    return Unimplemented("cuda: MXFP4 experts whose MLP has {} columns, expected whole {}",
                         first.rows() / 2, kMxfp4TileRows);
  }
  std::vector<ExpertEntry> table;
  for (const FeedForwardWeights& expert : experts) {
    if (!IsAlike(WeightOf(expert.gate_up), first) ||
        !IsAlike(WeightOf(expert.down), WeightOf(experts[0].down)) ||
        first.dtype() != WeightOf(expert.down).dtype()) {
      return Unimplemented("cuda: the experts of a layer have weights of several types");
    }
    table.push_back(
        {MatrixOf(expert.gate_up, expert.gate_up_bias), MatrixOf(expert.down, expert.down_bias)});
  }
  const size_t bytes = table.size() * sizeof(ExpertEntry);
  TALON_ASSIGN_OR_RETURN(Buffer buffer, AllocateDevice(stream(), bytes));
  TALON_CUDA_CHECK(
      cudaMemcpyAsync(buffer.data(), table.data(), bytes, cudaMemcpyHostToDevice, stream().handle));
  TALON_CUDA_CHECK(cudaStreamSynchronize(stream().handle));
  return std::move(buffer);
}

void CudaExpertOps::FeedForward(MatrixView x, const float* norm, float epsilon,
                                const ExpertsWeights& weights) {
  if (x.rows == 0) return;
  const auto own = static_cast<int>(weights.experts.size());
  const CudaWeight& gate_up = WeightOf(weights.experts[0].gate_up);
  const CudaWeight& down = WeightOf(weights.experts[0].down);
  const CudaWeight& router = WeightOf(weights.router);
  const int experts = router.rows();
  const int per_row = weights.rule.per_row;
  TALON_CHECK(router.dtype() == DType::kF32 && x.cols == gate_up.cols() && x.cols == down.rows());
  TALON_CHECK(experts <= kMaxExperts && per_row <= std::min(experts, kMaxExpertsPerRow));
  TALON_CHECK(weights.prepared != nullptr && weights.first_expert + own <= experts);
  const int slots = x.rows * per_row;
  const int tile_pairs = TilePairs(gate_up.dtype(), x.rows, per_row, experts);
  const int most_tiles = std::min(slots, own + slots / tile_pairs);
  const DType operand = gate_up.operand_dtype();
  const int inputs = PaddedInputs(x.cols);
  const int hidden = PaddedInputs(down.cols());
  Routes routes = CutRoutes(&routes_, x.rows, experts, slots);
  routes.row_blocks = counters_.GetAs<uint32_t>(x.rows + 1);
  void* normed = normed_.Get(int64_t{x.rows} * inputs * DTypeSize(operand));
  void* gated = gated_.Get(int64_t{slots} * hidden * DTypeSize(operand));
  auto* results = results_.GetAs<float>(int64_t{slots} * x.cols);

  LaunchRoute(stream(),
              {.x = x,
               .norm = norm,
               .epsilon = epsilon,
               .router = static_cast<const float*>(router.data()),
               .router_stride = router.padded_cols(),
               .router_bias = weights.router_bias,
               .experts = experts,
               .first_own = weights.first_expert,
               .own = own,
               .rule = weights.rule,
               .tile_pairs = tile_pairs,
               .operand_factor = RowFactor(gate_up.dtype()),
               .operand = normed,
               .operand_stride = inputs,
               .routes = routes},
              operand);
  const ExpertProduct activated{.table = static_cast<const ExpertEntry*>(weights.prepared),
                                .routes = routes,
                                .per_row = per_row,
                                .gate_limit = weights.rule.gate_limit,
                                .x = normed,
                                .x_stride = inputs,
                                .inputs = x.cols,
                                .outputs = down.cols(),
                                .matrix_rows = gate_up.rows(),
                                .row_bytes = gate_up.row_bytes(),
                                .scale_stride = gate_up.scale_stride(),
                                .out = gated,
                                .out_stride = hidden,
                                .out_factor = RowFactor(down.dtype())};
  LaunchProduct(stream(), gate_up.dtype(), activated, /*gated=*/true, tile_pairs,
                most_tiles * CeilDiv(down.cols(), kItemOutputs / 2));
  LaunchProduct(stream(), down.dtype(), DownProduct(activated, down, results), /*gated=*/false,
                tile_pairs, most_tiles * CeilDiv(x.cols, kItemOutputs));
  if (weights.ranks != nullptr) {
    ShareResults(weights, routes.experts, slots, x.cols, results);
  }
  LaunchCombine(stream(), x, results, per_row);
}

void CudaExpertOps::ShareResults(const ExpertsWeights& weights, const int32_t* experts, int slots,
                                 int cols, float* results) {
  const int size = weights.ranks->size();
  const std::vector<int> bounds = SegmentBounds(weights.router->rows(), 1);
  std::vector<int32_t> owners(slots);
  context_->Copy(owners.data(), experts, slots * sizeof(int32_t));
  for (int32_t& owner : owners) {
    const int expert = owner;
    owner = 0;
    while (InputsOf(bounds, owner, size).last <= expert) ++owner;
  }
  exchange_->ShareRows(weights.ranks, {results, slots, cols, cols}, owners);
}

}  // namespace talon::cuda
