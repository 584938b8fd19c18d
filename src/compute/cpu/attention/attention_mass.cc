#include "compute/cpu/attention/attention_mass.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "compute/cpu/attention/kernels.h"
#include "compute/cpu/attention/kv_kernels.h"
#include "compute/host/host_memory.h"

namespace talon {
namespace {

constexpr int kChunk = 32;  // queries at a time, so that their scores stay in the cache

// One request's sizes.
struct Extent {
  Extent(const ScoreCall& call, const ScoreRequest& request)
      : rows(request.row_end - request.row_begin),
        group(call.group()),
        queries(rows * group),
        blocks(request.num_blocks),
        tile_blocks(kTileKeys / call.shape.block_size),
        tiles(CeilDiv(blocks, tile_blocks)) {}

  int rows;
  int group;
  int queries;
  int blocks;
  int tile_blocks;
  int tiles;
};

// The weights of one tile's blocks at one kv head, under all queries.
class TileTask {
 public:
  TileTask(const ScoreCall& call, const ScoreRequest& request, FloatArena* arena)
      : call_(call),
        request_(request),
        extent_(call, request),
        kernels_(PortableAttentionKernels(call.shape.value_type())),
        dim_(PaddedDim(call.shape.head_dim)) {
    arena->Clear();
    keys_ = arena->Take(static_cast<size_t>(kTileKeys) * dim_);
    expanded_ = arena->Take(static_cast<size_t>(kTileKeys) * dim_ / 2);
    queries_ = arena->Take(static_cast<size_t>(kChunk) * dim_);
    scores_ = arena->Take(kChunk * kTileKeys);
    probs_ = arena->Take(kChunk * kTileKeys);
  }

  void Run(int kv_head, int tile, TileWeights* out) {
    const int first_block = tile * extent_.tile_blocks;
    const int blocks = std::min(extent_.tile_blocks, extent_.blocks - first_block);
    PackKeys(kv_head, first_block, blocks);
    for (int first = 0; first < extent_.queries; first += kChunk) {
      const int count = std::min(kChunk, extent_.queries - first);
      PackQueries(kv_head, first, count);
      Softmax(count, blocks * call_.shape.block_size);
      for (int i = 0; i < count; ++i) {
        const int64_t query = int64_t{kv_head} * extent_.queries + first + i;
        out->largest[query * extent_.tiles + tile] = max_[i];
        SumBlocks(i, blocks, out->weights.data() + query * extent_.blocks + first_block);
      }
    }
  }

 private:
  void PackKeys(int kv_head, int first_block, int blocks) {
    const KvShape& shape = call_.shape;
    const auto list =
        call_.pass->BlocksOf(request_.sequence, call_.layer_index, kv_head, shape.kv_heads);
    KvTile tile{.head_dim = shape.head_dim};
    for (int i = 0; i < blocks; ++i) {
      const int64_t slot = int64_t{list[first_block + i]} * shape.block_size;
      for (int key = 0; key < shape.block_size; key += kUnitKeys) {
        const HostVector unit = VectorAt(shape, call_.layer.k_blocks, nullptr, slot + key, kv_head);
        tile.units[tile.num_units] = Vectors(unit, tile.num_units);
        ++tile.num_units;
      }
    }
    kernels_.pack_keys(tile, keys_);
  }

  // Unit `index` of the tile as vectors of a float type.
  const void* Vectors(const HostVector& unit, int index) {
    const KvShape& shape = call_.shape;
    if (!shape.quantised() && !shape.in_units()) return unit.elements;
    auto* out = reinterpret_cast<uint16_t*>(expanded_) + index * kUnitKeys * shape.head_dim;
    ReadTokens(shape, KvSide::kKeys, unit, kUnitKeys, out);
    return out;
  }

  void PackQueries(int kv_head, int first, int count) {
    const int head_dim = call_.shape.head_dim;
    const float scale = kLog2E / std::sqrt(static_cast<float>(head_dim));
    for (int i = 0; i < count; ++i) {
      const int row = request_.row_begin + (first + i) / extent_.group;
      const int head = kv_head * extent_.group + (first + i) % extent_.group;
      kernels_.pack_query(call_.q.data + row * call_.q.stride + int64_t{head} * head_dim, head_dim,
                          scale, queries_ + i * dim_);
    }
  }

  void Softmax(int count, int keys) {
    kernels_.multiply({.a = queries_,
                       .a_stride = dim_,
                       .b = keys_,
                       .b_cols = kTileKeys,
                       .rows = count,
                       .depth = dim_,
                       .cols = keys,
                       .out = scores_,
                       .out_stride = kTileKeys});
    float sum[kChunk] = {};
    float rescale[kChunk];
    int32_t firsts[kChunk] = {};
    int32_t counts[kChunk];
    std::fill_n(counts, count, keys);
    std::fill_n(max_, count, -HUGE_VALF);
    kernels_.softmax({.scores = scores_,
                      .probs = probs_,
                      .firsts = firsts,
                      .counts = counts,
                      .rows = count,
                      .max = max_,
                      .sum = sum,
                      .rescale = rescale});
  }

  void SumBlocks(int query, int blocks, float* out) const {
    const float* probs = probs_ + query * kTileKeys;
    for (int b = 0; b < blocks; ++b) {
      float sum = 0;
      for (int i = 0; i < call_.shape.block_size; ++i) sum += *probs++;
      out[b] = sum;
    }
  }

  const ScoreCall& call_;
  const ScoreRequest& request_;
  const Extent extent_;
  const AttentionKernels& kernels_;  // the portable ones: operands are float32, row by row
  const int dim_;
  float* keys_;      // packed
  float* expanded_;  // [128, head_dim] of bf16, before: those that do not lie as such vectors
  float* queries_;   // [queries, dim]
  float* scores_;    // [queries, 128]
  float* probs_;     // the same
  float max_[kChunk];
};

// Factors that make one query's weights a distribution over all tiles.
void NormaliseTiles(const Extent& extent, const float* weights, std::span<float> factors) {
  const float largest = *std::ranges::max_element(factors);
  double total = 0;
  for (int tile = 0; tile < extent.tiles; ++tile) {
    factors[tile] = std::exp2(factors[tile] - largest);
    const int end = std::min((tile + 1) * extent.tile_blocks, extent.blocks);
    double sum = 0;
    for (int b = tile * extent.tile_blocks; b < end; ++b) sum += weights[b];
    total += sum * factors[tile];
  }
  for (float& factor : factors) factor = static_cast<float>(factor / total);
}

// Reduces the masses of all queries of a kv head as the request says.
void ReduceHead(const ScoreRequest& request, const Extent& extent, int kv_head,
                TileWeights* weights, float* out) {
  const bool mean = request.reduce == ScoreReduce::kMean;
  const float share = 1.0f / static_cast<float>(mean ? extent.queries : extent.group);
  std::vector<float> largest(extent.blocks);
  std::fill_n(out, extent.blocks, 0.0f);
  for (int head = 0; head < extent.group; ++head) {
    std::ranges::fill(largest, -HUGE_VALF);
    for (int row = 0; row < extent.rows; ++row) {
      const int64_t query = (int64_t{kv_head} * extent.rows + row) * extent.group + head;
      const float* own = weights->weights.data() + query * extent.blocks;
      const auto factors = std::span(weights->largest).subspan(query * extent.tiles, extent.tiles);
      NormaliseTiles(extent, own, factors);
      for (int b = 0; b < extent.blocks; ++b) {
        const float mass = own[b] * factors[b / extent.tile_blocks];
        if (mean) out[b] += std::isnan(mass) ? -HUGE_VALF : mass * share;
        if (!mean && mass > largest[b]) largest[b] = mass;
      }
    }
    for (int b = 0; b < extent.blocks && !mean; ++b) out[b] += largest[b] * share;
  }
}

}  // namespace

size_t AttentionMassFloats(int dim) {
  return FloatArena::Rounded(static_cast<size_t>(kTileKeys) * dim) +
         FloatArena::Rounded(static_cast<size_t>(kTileKeys) * dim / 2) +
         FloatArena::Rounded(static_cast<size_t>(kChunk) * dim) +
         2 * FloatArena::Rounded(kChunk * kTileKeys);
}

void ScoreByAttention(ThreadPool& pool, const ScoreCall& call, const ScoreRequest& request,
                      ScoreScratch* scratch) {
  const Extent extent(call, request);
  const int heads = call.shape.kv_heads;
  TileWeights* weights = scratch->tile_weights();
  weights->weights.resize(size_t{1} * heads * extent.queries * extent.blocks);
  weights->largest.resize(size_t{1} * heads * extent.queries * extent.tiles);
  pool.Run(int64_t{extent.tiles} * heads, [&](int64_t index, int thread) {
    TileTask(call, request, &scratch->thread(thread))
        .Run(static_cast<int>(index % heads), static_cast<int>(index / heads), weights);
  });
  pool.Run(heads, [&](int64_t head, int /*thread*/) {
    ReduceHead(request, extent, static_cast<int>(head), weights,
               call.out.data + head * call.out.stride + request.first_column);
  });
}

}  // namespace talon
