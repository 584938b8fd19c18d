#include "base/check.h"
#include "base/math.h"
#include "compute/cuda/device/dynamic_shared.cuh"
#include "compute/cuda/device/kv_codes.cuh"
#include "compute/cuda/kv/block_scores.h"
#include "compute/cuda/kv/kv_ops.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTileBlocks = 64;   // two for each lane
constexpr int kTileQueries = 32;  // eight for each warp
constexpr int kWarpQueries = 8;
constexpr int kTileDims = 32;  // dimensions of summaries and queries in shared memory at a time
constexpr float kLowest = -__builtin_huge_valf();

__device__ __forceinline__ float OrLowest(float score) { return isnan(score) ? kLowest : score; }
__device__ __forceinline__ float LargerOrNaN(float a, float b) { return a > b || isnan(a) ? a : b; }

struct ScoreArgs {
  DevicePlan plan;
  MatrixView q;
  KvShape shape;
  KvLayer layer;
  int layer_index;
  MatrixView out;
  int group;
};

// Blocks [first, first + count) of a request's list, at one kv head.
struct ScoreTile {
  ScoreRequest request;
  int kv_head;
  int first;
  int count;
  const int32_t* blocks;

  __device__ int64_t Summary(const ScoreArgs& args, int i) const {
    return static_cast<int64_t>(blocks[first + i]) * args.shape.kv_heads + kv_head;
  }
};

// Rows are padded so that lanes that write or read a column of them meet different banks.
struct ScoreShared {
  float largest[kTileDims][kTileBlocks + 2];
  float smallest[kTileDims][kTileBlocks + 2];
  float queries[kTileQueries][kTileDims];
  float scores[kTileQueries][kTileBlocks + 1];
};  // then totals [group][kTileBlocks]

// The piece of work numbered `index`, or false: there are fewer.
__device__ bool FindTile(const ScoreArgs& args, int index, ScoreTile* tile) {
  for (int r = 0; r < args.plan.score_requests; ++r) {
    const ScoreRequest request = args.plan.scores[r];
    const int tiles = CeilDiv(request.num_blocks, kTileBlocks);
    if (index >= tiles * args.shape.kv_heads) {
      index -= tiles * args.shape.kv_heads;
      continue;
    }
    const int head = index / tiles;
    const int first = index % tiles * kTileBlocks;
    *tile = {request, head, first, min(kTileBlocks, request.num_blocks - first),
             args.plan.BlocksOf(request.sequence, args.layer_index, head, args.shape.kv_heads)};
    return true;
  }
  return false;
}

// Dims [dim, dim + kTileDims) of the summaries and of queries [query, query + kTileQueries), zeros
// where there are none.
template <typename T>
__device__ void LoadDims(const ScoreArgs& args, const ScoreTile& tile, int query, int dim,
                         ScoreShared& shared) {
  const int head_dim = args.shape.head_dim;
  for (int i = threadIdx.x; i < kTileBlocks * kTileDims; i += kThreads) {
    const int block = i / kTileDims;
    const int d = i % kTileDims;
    float largest = 0, smallest = 0;
    if (block < tile.count && dim + d < head_dim) {
      const int64_t at = tile.Summary(args, block) * head_dim + dim + d;
      largest = ToFloat(static_cast<const T*>(args.layer.key_max)[at]);
      smallest = ToFloat(static_cast<const T*>(args.layer.key_min)[at]);
    }
    shared.largest[d][block] = largest;
    shared.smallest[d][block] = smallest;
  }
  const int num_queries = (tile.request.row_end - tile.request.row_begin) * args.group;
  for (int i = threadIdx.x; i < kTileQueries * kTileDims; i += kThreads) {
    const int q = query + i / kTileDims;
    const int d = dim + i % kTileDims;
    float value = 0;
    if (q < num_queries && d < head_dim) {
      const int row = tile.request.row_begin + q / args.group;
      const int head = tile.kv_head * args.group + q % args.group;
      value = args.q.data[row * args.q.stride + head * head_dim + d];
    }
    shared.queries[i / kTileDims][i % kTileDims] = value;
  }
}

// Products of a warp's queries with a lane's two blocks.
struct Products {
  float with_max[kWarpQueries][2] = {};  // or the bound
  float with_min[kWarpQueries][2] = {};

  template <bool Bound>
  __device__ void Add(const ScoreShared& shared) {
    const int lane = threadIdx.x % 32;
    const int first_query = threadIdx.x / 32 * kWarpQueries;
#pragma unroll 4
    for (int d = 0; d < kTileDims; ++d) {
      const float2 largest = *reinterpret_cast<const float2*>(&shared.largest[d][2 * lane]);
      const float2 smallest = *reinterpret_cast<const float2*>(&shared.smallest[d][2 * lane]);
#pragma unroll
      for (int i = 0; i < kWarpQueries; ++i) {
        const float q = shared.queries[first_query + i][d];
        AddElement<Bound>(q, largest.x, smallest.x, i, 0);
        AddElement<Bound>(q, largest.y, smallest.y, i, 1);
      }
    }
  }

  template <bool Bound>
  __device__ void Write(ScoreShared& shared) const {
    const int lane = threadIdx.x % 32;
    const int first_query = threadIdx.x / 32 * kWarpQueries;
#pragma unroll
    for (int i = 0; i < 2 * kWarpQueries; ++i) {
      const float a = with_max[i / 2][i % 2];
      const float score = Bound ? a : LargerOrNaN(a, with_min[i / 2][i % 2]);
      shared.scores[first_query + i / 2][2 * lane + i % 2] = OrLowest(score);
    }
  }

 private:
  template <bool Bound>
  __device__ __forceinline__ void AddElement(float q, float largest, float smallest, int i, int b) {
    if constexpr (Bound) {
      with_max[i][b] =
          __fadd_rn(with_max[i][b], LargerOrNaN(__fmul_rn(q, largest), __fmul_rn(q, smallest)));
    } else {
      with_max[i][b] = __fmaf_rn(q, largest, with_max[i][b]);
      with_min[i][b] = __fmaf_rn(q, smallest, with_min[i][b]);
    }
  }
};

// Adds the scores of queries [query, ..) to their heads' totals, row after row.
__device__ void AddToTotals(const ScoreArgs& args, const ScoreTile& tile, int query,
                            const ScoreShared& shared, float* totals) {
  if (threadIdx.x >= kTileBlocks) return;
  const int num_queries = (tile.request.row_end - tile.request.row_begin) * args.group;
  const int count = min(kTileQueries, num_queries - query);
  for (int i = 0; i < count; ++i) {
    float& total = totals[(query + i) % args.group * kTileBlocks + threadIdx.x];
    const float score = shared.scores[i][threadIdx.x];
    total = tile.request.reduce == ScoreReduce::kMax ? fmaxf(total, score) : total + score;
  }
}

__device__ void WriteTile(const ScoreArgs& args, const ScoreTile& tile, const float* totals) {
  if (threadIdx.x >= tile.count) return;
  const bool mean = tile.request.reduce == ScoreReduce::kMean;
  const int rows = mean ? tile.request.row_end - tile.request.row_begin : 1;
  float sum = 0;
  for (int head = 0; head < args.group; ++head) sum += totals[head * kTileBlocks + threadIdx.x];
  const float score = __fdiv_rn(sum, static_cast<float>(rows * args.group));
  args.out
      .data[tile.kv_head * args.out.stride + tile.request.first_column + tile.first + threadIdx.x] =
      OrLowest(score);
}

template <typename T, bool Bound>
__device__ void ScoreQueries(const ScoreArgs& args, const ScoreTile& tile, ScoreShared& shared) {
  float* totals = reinterpret_cast<float*>(&shared + 1);
  const bool largest = tile.request.reduce == ScoreReduce::kMax;
  const int num_queries = (tile.request.row_end - tile.request.row_begin) * args.group;
  for (int i = threadIdx.x; i < args.group * kTileBlocks; i += kThreads) {
    totals[i] = largest ? kLowest : 0.0f;
  }
  for (int query = 0; query < num_queries; query += kTileQueries) {
    Products products;
    for (int dim = 0; dim < args.shape.head_dim; dim += kTileDims) {
      __syncthreads();
      LoadDims<T>(args, tile, query, dim, shared);
      __syncthreads();
      products.Add<Bound>(shared);
    }
    products.Write<Bound>(shared);
    __syncthreads();
    AddToTotals(args, tile, query, shared, totals);
  }
  WriteTile(args, tile, totals);  // each thread reads its own totals
  __syncthreads();
}

__device__ void CopyNorms(const ScoreArgs& args, const ScoreTile& tile) {
  if (threadIdx.x >= tile.count) return;
  const float norm = args.layer.key_norm[tile.Summary(args, threadIdx.x)];
  args.out
      .data[tile.kv_head * args.out.stride + tile.request.first_column + tile.first + threadIdx.x] =
      OrLowest(norm);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) ScoreKernel(const __grid_constant__ ScoreArgs args) {
  auto& shared = *static_cast<ScoreShared*>(DynamicShared());
  PdlTrigger();
  PdlWait();
  ScoreTile tile;
  for (int index = blockIdx.x; FindTile(args, index, &tile); index += gridDim.x) {
    if (tile.request.scorer == BlockScorer::kH2o) {
      CopyNorms(args, tile);
    } else if (tile.request.scorer == BlockScorer::kQuestBound) {
      ScoreQueries<T, true>(args, tile, shared);
    } else {
      ScoreQueries<T, false>(args, tile, shared);
    }
  }
}

struct SummaryArgs {
  KvShape shape;
  const KvLayer* layers;
  const int32_t* blocks;
};

// A block for each (block of the cache, kv head, layer).
template <typename T>
__global__ void __launch_bounds__(kThreads) SummaryKernel(const SummaryArgs args) {
  __shared__ float norms[64];
  PdlTrigger();
  const KvLayer layer = args.layers[blockIdx.z];
  const int64_t index =
      static_cast<int64_t>(args.blocks[blockIdx.x]) * args.shape.kv_heads + blockIdx.y;
  const int head_dim = args.shape.head_dim;
  const int tokens = args.shape.block_size;
  using Value = typename KvElement<T>::Value;
  const auto key = [&](int token) {
    return KvVectorAt<T>(layer.k_blocks, args.shape.BlockVectors(), head_dim,
                         index * tokens + token);
  };
  PdlWait();
  for (int d = threadIdx.x; d < head_dim; d += kThreads) {
    float largest = key(0)[d], smallest = largest;
    for (int token = 1; token < tokens; ++token) {
      const float value = key(token)[d];
      if (value > largest || isnan(value)) largest = value;
      if (value < smallest || isnan(value)) smallest = value;
    }
    static_cast<Value*>(layer.key_max)[index * head_dim + d] = FromFloat<Value>(largest);
    static_cast<Value*>(layer.key_min)[index * head_dim + d] = FromFloat<Value>(smallest);
  }
  for (int token = threadIdx.x / 32; token < tokens; token += kThreads / 32) {
    float squares = 0;
    for (int d = threadIdx.x % 32; d < head_dim; d += 32) {
      const float value = key(token)[d];
      squares = __fmaf_rn(value, value, squares);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    }
    if (threadIdx.x % 32 == 0) norms[token] = sqrtf(squares);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (int token = 0; token < tokens; ++token) sum += norms[token];
  layer.key_norm[index] = sum / static_cast<float>(tokens);
}

}  // namespace

void ScoreBlocks(const Stream& stream, const ScoreCall& call) {
  TALON_CHECK(call.shape.key_summaries && call.q.rows == call.plan.rows);
  TALON_CHECK(call.out.rows == call.shape.kv_heads);
  if (call.plan.score_requests == 0) return;
  const ScoreArgs args = {call.plan,        call.q,   call.shape,  call.layer,
                          call.layer_index, call.out, call.group()};
  const size_t shared = sizeof(ScoreShared) + args.group * kTileBlocks * sizeof(float);
  DispatchFloatType(call.shape.value_type(), [&](auto type) {
    const auto kernel = &ScoreKernel<decltype(type)>;
    if (shared > 48 * 1024) AllowSharedMemory(kernel, shared);
    Launch(stream, kernel, 4 * stream.multiprocessors, kThreads, shared, args);
  });
}

void SummariseBlocks(const Stream& stream, const KvShape& shape, const KvLayer* layers,
                     const int32_t* blocks, int count) {
  TALON_CHECK(shape.key_summaries);
  if (count == 0) return;
  const dim3 grid(count, shape.kv_heads, shape.num_layers);
  DispatchKvType(shape.dtype, [&](auto type) {
    Launch(stream, &SummaryKernel<decltype(type)>, grid, kThreads, 0,
           SummaryArgs{shape, layers, blocks});
  });
}

}  // namespace talon::cuda
