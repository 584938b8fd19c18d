#include "compute/cpu/attention/attention_mass.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/math.h"
#include "compute/cpu/attention/block.h"
#include "compute/cpu/attention/kernels.h"
#include "compute/cpu/vector_clones.h"

namespace talon {
namespace {

// Sums of runs of `length` values, a multiple of 8: lane by lane first.
TALON_VECTOR_CLONES void SumRuns(const float* values, int runs, int length, float* sums) {
  constexpr int kLanes = 8;
  for (int run = 0; run < runs; ++run) {
    float lanes[kLanes] = {};
    for (int i = 0; i < length; i += kLanes, values += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += values[lane];
    }
    sums[run] = ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
                ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  }
}

// Factors that make one query's weights a distribution over all tiles, in place of the tiles'
// largest scores: 0 for a tile without keys.
void NormaliseTiles(std::span<const float> totals, std::span<float> factors) {
  const float largest = *std::ranges::max_element(factors);
  double total = 0;
  for (size_t tile = 0; tile < factors.size(); ++tile) {
    const bool seen = factors[tile] != -HUGE_VALF;
    factors[tile] = seen ? std::exp2(factors[tile] - largest) : 0;
    if (seen) total += double{totals[tile]} * factors[tile];
  }
  for (float& factor : factors) {
    if (factor != 0) factor = static_cast<float>(factor / total);
  }
}

}  // namespace

void BlockMasses::Begin(const AttentionCall& call) {
  block_size_ = call.shape.block_size;
  request_of_row_.assign(call.pass->num_rows(), -1);
  size_t count = 0;
  for (const ScoreRequest& asked : call.pass->scores) {
    if (asked.scorer != BlockScorer::kAttention || asked.num_blocks == 0) continue;
    std::fill(request_of_row_.begin() + asked.row_begin, request_of_row_.begin() + asked.row_end,
              static_cast<int>(count));
    if (requests_.size() == count) requests_.emplace_back();
    Request& request = requests_[count++];
    request.asked = &asked;
    request.rows = asked.row_end - asked.row_begin;
    request.tiles = CeilDiv(asked.num_blocks * block_size_, kTileKeys);
    const size_t queries = size_t{1} * call.heads() * request.rows;
    request.weights.resize(std::max(request.weights.size(), queries * asked.num_blocks));
    request.largest.assign(queries * request.tiles, -HUGE_VALF);
    request.totals.resize(queries * request.tiles);
  }
  requests_.resize(count);
}

void BlockMasses::AddTile(const AttentionRow& row, int head, int tile, float* scores) {
  Request& request = requests_[request_of_row_[row.row]];
  if (tile >= request.tiles) return;
  const int tile_blocks = kTileKeys / block_size_;
  const int first_block = tile * tile_blocks;
  const int blocks = std::min(tile_blocks, request.asked->num_blocks - first_block);
  const int32_t first = row.TileFirst(tile);
  const int32_t count = std::min(row.TileKeys(tile), blocks * block_size_);
  if (count <= first) return;
  alignas(64) float weights[kTileKeys];
  float max = -HUGE_VALF, sum = 0, rescale = 0;
  PortableAttentionKernels(DType::kF32)
      .softmax({.scores = scores,
                .probs = weights,
                .firsts = &first,
                .counts = &count,
                .rows = 1,
                .max = &max,
                .sum = &sum,
                .rescale = &rescale});
  const int64_t query = request.QueryOf(head, row.row);
  request.largest[query * request.tiles + tile] = max;
  request.totals[query * request.tiles + tile] = sum;
  SumRuns(weights, blocks, block_size_,
          request.weights.data() + query * request.asked->num_blocks + first_block);
}

void BlockMasses::ReduceHead(Request* request, int head, float factor, float* out) const {
  const ScoreRequest& asked = *request->asked;
  const int tile_blocks = kTileKeys / block_size_;
  const bool mean = asked.reduce == ScoreReduce::kMean;
  std::vector<float> largest(asked.num_blocks, -HUGE_VALF);
  for (int row = asked.row_begin; row < asked.row_end; ++row) {
    const int64_t query = request->QueryOf(head, row);
    const float* weights = request->weights.data() + query * asked.num_blocks;
    const auto factors =
        std::span(request->largest).subspan(query * request->tiles, request->tiles);
    NormaliseTiles(std::span(request->totals).subspan(query * request->tiles, request->tiles),
                   factors);
    for (int tile = 0; tile < request->tiles; ++tile) {
      const int end = std::min((tile + 1) * tile_blocks, asked.num_blocks);
      for (int b = tile * tile_blocks; b < end; ++b) {
        const float mass = factors[tile] == 0 ? 0 : weights[b] * factors[tile];
        if (mean) out[b] += std::isnan(mass) ? -HUGE_VALF : mass * factor;
        if (!mean && mass > largest[b]) largest[b] = mass;
      }
    }
  }
  for (int b = 0; b < asked.num_blocks && !mean; ++b) out[b] += largest[b] * factor;
}

void BlockMasses::Write(ThreadPool& pool, const AttentionCall& call) {
  const int kv_heads = call.shape.kv_heads;
  pool.Run(static_cast<int64_t>(requests_.size()) * kv_heads, [&](int64_t task, int /*thread*/) {
    Request& request = requests_[task / kv_heads];
    const ScoreRequest& asked = *request.asked;
    const auto kv_head = static_cast<int>(task % kv_heads);
    float* out = call.scores.data + kv_head * call.scores.stride + asked.first_column;
    std::fill_n(out, asked.num_blocks, 0.0f);
    const bool mean = asked.reduce == ScoreReduce::kMean;
    const float factor =
        1.0f / static_cast<float>(mean ? call.group() * request.rows : call.group());
    for (int h = kv_head * call.group(); h < (kv_head + 1) * call.group(); ++h) {
      ReduceHead(&request, h, factor, out);
    }
  });
}

}  // namespace talon
