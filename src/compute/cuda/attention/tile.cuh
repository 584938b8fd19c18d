// Flash attention of a tile of queries over tiles of 64 keys with mma.sync: shared by the prefix
// and the tail kernel. WarpgroupKernel does the same arithmetic with wgmma, whose sums have the
// bits of mma.sync's, so that all of them give a row the same bits.
//
// A block's warps are kWarpsM x kWarpsN: along M they split the queries; along N each computes the
// scores of some keys, shares them through shared memory, repeats the softmax and computes some
// columns of the output. Neither split changes an element's arithmetic.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_TILE_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_TILE_CUH_

#include <cstdint>

#include "base/math.h"
#include "compute/cuda/attention/item.cuh"
#include "compute/cuda/attention/plan.h"
#include "compute/cuda/attention/softmax.cuh"
#include "compute/cuda/device/dynamic_shared.cuh"
#include "compute/cuda/device/kv_codes.cuh"
#include "compute/cuda/device/mma.cuh"

namespace talon::cuda {

inline constexpr int kVectorRing = 4;  // tiles whose vectors are known ahead, stages + 1 at least

template <typename Element, int Dim, int WarpsM, int WarpsN, int TilesM, int Stages>
struct TileConfig {
  using Stored = Element;  // the cache's
  using T = typename KvElement<Element>::Value;
  static constexpr bool kExpands = KvElement<Element>::kIsCode;
  static constexpr int kDim = Dim;  // head_dim, padded with zeros
  static constexpr int kWarpsM = WarpsM;
  static constexpr int kWarpsN = WarpsN;
  static constexpr int kTilesM = TilesM;  // tiles of 16 queries per warp
  static constexpr int kStages = Stages;
  static constexpr int kThreads = 32 * WarpsM * WarpsN;
  static constexpr int kQueries = 16 * WarpsM * TilesM;
  // Eight consecutive rows are in different banks: their 16-byte pieces are permuted or, where that
  // is not possible, rows are padded.
  static constexpr bool kSwizzled = (Dim & (Dim - 1)) == 0;
  static constexpr int kStride = TileStride(Dim);
  static __device__ int Column(int row, int column) {
    return kSwizzled ? column ^ row % 8 * 8 : column;
  }
  static constexpr int kKeyPairs = kTileKeys / 16 / WarpsN;  // pairs of 8 keys per warp
  static constexpr int kDimPairs = Dim / 16;
  static constexpr int kOwnDimPairs = CeilDiv(kDimPairs, WarpsN);
};

template <typename C>
struct SharedTile {
  typename C::T k[C::kStages][kTileKeys][C::kStride];
  typename C::T v[C::kStages][kTileKeys][C::kStride];
  typename C::T q[C::kQueries][C::kStride];
  float4 scores[C::kWarpsN > 1 ? C::kQueries / 16 * (kTileKeys / 8) * 32 : 1];
  QuerySlot queries[C::kQueries];
  int32_t vectors[kVectorRing][kTileKeys];
  AttentionItem item;
  int32_t next_item;
  uint8_t scales[C::kExpands ? 2 * kTileKeys : 1];  // the expanded tile's: keys, values
};

// Position of a thread in its block.
template <typename C>
struct Lane {
  int lane = threadIdx.x % 32;
  int n = threadIdx.x / 32 % C::kWarpsN;
  int m = threadIdx.x / 32 / C::kWarpsN;

  // The query of the tile that accumulator rows g (half 0) and g + 8 (half 1) belong to.
  __device__ int Query(int tile, int half) const {
    return (m * C::kTilesM + tile) * 16 + half * 8 + lane / 4;
  }
  // First of the two columns a lane holds in the left (0) or right (1) 8 of a pair of columns.
  __device__ int Column(int pair, int side) const {
    return (pair * C::kWarpsN + n) * 16 + side * 8 + lane % 4 * 2;
  }
  __device__ bool Owns(int pair) const {
    return C::kDimPairs % C::kWarpsN == 0 || pair * C::kWarpsN + n < C::kDimPairs;
  }
};

// The online softmax of a chunk: maximum score, sum of weights, accumulator of weighted values.
template <typename C>
struct FlashState {
  float m[C::kTilesM][2];
  float l[C::kTilesM][2];
  float acc[C::kTilesM][C::kOwnDimPairs][2][4];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < C::kTilesM; ++i) {
      m[i][0] = m[i][1] = kMinusInfinity;
      l[i][0] = l[i][1] = 0;
#pragma unroll
      for (int j = 0; j < C::kOwnDimPairs * 8; ++j) acc[i][j / 8][j / 4 % 2][j % 4] = 0;
    }
  }
};

// A run of tiles [begin, end), whose keys start at 64 * begin.
struct TileRun {
  int begin;
  int end;
  int full_end;  // every query sees all keys before this one
  int chunk;     // first chunk
};

// The 16-byte pieces of a tile's vectors that a thread copies.
template <typename C>
struct OwnPieces {
  static constexpr int kColumns = 16 / sizeof(typename C::Stored);
  static constexpr int kPieces = C::kDim / kColumns;
  static constexpr int kCount = kTileKeys * kPieces / C::kThreads;
  static_assert(kTileKeys * kPieces % C::kThreads == 0);

  static __device__ int Key(int i) { return (i * C::kThreads + threadIdx.x) / kPieces; }
  static __device__ int Column(int i) {
    return (i * C::kThreads + threadIdx.x) % kPieces * kColumns;
  }
};

// Starts the copies of a tile's keys and values, whose vectors are known. Codes go to where the
// first of their numbers will be.
template <typename C>
__device__ __forceinline__ void StartTile(const AttentionArgs& args, SharedTile<C>& shared,
                                          int tile) {
  using Stored = typename C::Stored;
  using Own = OwnPieces<C>;
  const int stage = tile % C::kStages;
#pragma unroll
  for (int i = 0; i < Own::kCount; ++i) {
    const int key = Own::Key(i);
    const int column = Own::Column(i);
    const int vector = shared.vectors[tile % kVectorRing][key];
    const bool present = vector != kNoVector && column < args.head_dim;
    const bool staged = vector < 0;
    const int64_t offset =
        present ? static_cast<int64_t>(staged ? ~vector : vector) * args.head_dim + column : 0;
    const auto* k = static_cast<const Stored*>(staged ? args.k_staged : args.k_blocks);
    const auto* v = static_cast<const Stored*>(staged ? args.v_staged : args.v_blocks);
    const int at = C::Column(key, column);
    CpAsync16(&shared.k[stage][key][at], k + offset, present);
    CpAsync16(&shared.v[stage][key][at], v + offset, present);
  }
}

// The scale of a tile's key or, in the second half of the threads, of its value. Bypasses L1, as
// the copies do.
template <typename C>
__device__ __forceinline__ uint8_t LoadScale(const AttentionArgs& args, const SharedTile<C>& shared,
                                             int tile) {
  static_assert(C::kThreads == 2 * kTileKeys);
  const int vector = shared.vectors[tile % kVectorRing][threadIdx.x % kTileKeys];
  if (vector == kNoVector) return kLeastKvScale;
  const bool is_key = threadIdx.x < kTileKeys;
  const bool staged = vector < 0;
  const auto* codes = static_cast<const uint8_t*>(
      staged ? (is_key ? args.k_staged : args.v_staged) : (is_key ? args.k_blocks : args.v_blocks));
  const int64_t vectors = staged ? args.staged_vectors : args.block_vectors;
  return __ldcg(codes + vectors * args.head_dim + (staged ? ~vector : vector));
}

// Expands the codes of a tile, each thread those that it has copied itself.
template <typename C>
__device__ __forceinline__ void ExpandTile(SharedTile<C>& shared, int tile) {
  using Stored = typename C::Stored;
  using Own = OwnPieces<C>;
  const int stage = tile % C::kStages;
  const auto expand = [&](typename C::T(&rows)[kTileKeys][C::kStride], int key, int column,
                          uint8_t scale) {
    auto* first = reinterpret_cast<uint4*>(&rows[key][C::Column(key, column)]);
    auto* second = reinterpret_cast<uint4*>(&rows[key][C::Column(key, column + 8)]);
    const ExpandedCodes expanded = ExpandCodes<Stored>(*first, scale);
    *first = expanded.first;
    *second = expanded.second;
  };
#pragma unroll
  for (int i = 0; i < Own::kCount; ++i) {
    const int key = Own::Key(i);
    expand(shared.k[stage], key, Own::Column(i), shared.scales[key]);
    expand(shared.v[stage], key, Own::Column(i), shared.scales[kTileKeys + key]);
  }
}

// The vectors of the first kStages tiles of [begin, end), looked up in two steps so that the loads
// overlap others. `vector_of` returns a key's vector.
template <typename C>
struct FirstVectors {
  static constexpr int kLoads = CeilDiv(C::kStages * kTileKeys, C::kThreads);
  int begin;
  int vectors[kLoads];

  template <typename VectorOf>
  __device__ __forceinline__ FirstVectors(int first, int end, const VectorOf& vector_of)
      : begin(first) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int i = load * C::kThreads + threadIdx.x;
      vectors[load] = begin + i / kTileKeys < end ? vector_of(begin * kTileKeys + i) : kNoVector;
    }
  }
  __device__ __forceinline__ void Store(SharedTile<C>& shared) const {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int i = load * C::kThreads + threadIdx.x;
      const int tile = begin + i / kTileKeys;
      if (i < C::kStages * kTileKeys) {
        shared.vectors[tile % kVectorRing][i % kTileKeys] = vectors[load];
      }
    }
  }
};

// Starts copying those of the first kStages - 1 tiles of the run that lie in [from, to).
template <typename C>
__device__ __forceinline__ void StartFirstTiles(const AttentionArgs& args, SharedTile<C>& shared,
                                                const TileRun& run, int from, int to) {
#pragma unroll
  for (int i = 0; i < C::kStages - 1; ++i) {
    const int tile = run.begin + i;
    if (tile < from || tile >= to) continue;
    if (tile < run.end) StartTile(args, shared, tile);
    CpAsyncCommitGroup();
  }
}

// Loads the queries of the slots, scaled and rounded to the cache's type. Bypasses L1 (__ldcg),
// which may hold data older than the writes of the preceding kernels (TailKernel).
template <typename C>
__device__ __forceinline__ void LoadQueries(const AttentionArgs& args, SharedTile<C>& shared) {
  using T = typename C::T;
  constexpr int kQuads = C::kDim / 4;
  constexpr int kLoads = C::kQueries * kQuads / C::kThreads;
  constexpr int kBatch = kLoads % 4 == 0 ? 4 : kLoads % 3 == 0 ? 3 : 2;  // in flight
  static_assert(C::kQueries * kQuads % (kBatch * C::kThreads) == 0);
  for (int first = threadIdx.x; first < C::kQueries * kQuads; first += kBatch * C::kThreads) {
    float4 x[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * C::kThreads;
      const int column = i % kQuads * 4;
      const int64_t offset = shared.queries[i / kQuads].offset;
      x[b] = {0, 0, 0, 0};
      if (offset >= 0 && column < args.head_dim) {
        x[b] = __ldcg(reinterpret_cast<const float4*>(args.q + offset + column));
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * C::kThreads;
      const float scale = args.scale_log2;
      const uint2 packed = {PackPair<T>(__fmul_rn(x[b].x, scale), __fmul_rn(x[b].y, scale)),
                            PackPair<T>(__fmul_rn(x[b].z, scale), __fmul_rn(x[b].w, scale))};
      const int query = i / kQuads;
      *reinterpret_cast<uint2*>(&shared.q[query][C::Column(query, i % kQuads * 4)]) = packed;
    }
  }
}

// Computes the scores of this warp's keys.
template <typename C>
__device__ __forceinline__ void OwnScores(const SharedTile<C>& shared, int stage, const Lane<C>& at,
                                          float (&s)[C::kTilesM][C::kKeyPairs * 2][4]) {
  using T = typename C::T;
#pragma unroll
  for (int i = 0; i < C::kTilesM; ++i) {
#pragma unroll
    for (int j = 0; j < C::kKeyPairs * 8; ++j) s[i][j / 4][j % 4] = 0;
  }
#pragma unroll
  for (int d = 0; d < C::kDim; d += 16) {
    uint32_t a[C::kTilesM][4];
#pragma unroll
    for (int i = 0; i < C::kTilesM; ++i) {
      const int query = (at.m * C::kTilesM + i) * 16 + at.lane % 16;
      LdMatrix(&shared.q[query][C::Column(query, d + at.lane / 16 * 8)], a[i]);
    }
#pragma unroll
    for (int pair = 0; pair < C::kKeyPairs; ++pair) {
      const int key = (at.n * C::kKeyPairs + pair) * 16 + at.lane % 8 + at.lane / 16 * 8;
      uint32_t b[4];
      LdMatrix(&shared.k[stage][key][C::Column(key, d + at.lane / 8 % 2 * 8)], b);
#pragma unroll
      for (int i = 0; i < C::kTilesM; ++i) {
        Mma<T>(s[i][2 * pair], a[i], b[0], b[1]);
        Mma<T>(s[i][2 * pair + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// Computes the scores of all keys of the tile, the same in all warps along N.
template <typename C>
__device__ __forceinline__ void AllScores(SharedTile<C>& shared, int stage, const Lane<C>& at,
                                          float (&s)[C::kTilesM][kTileKeys / 8][4]) {
  if constexpr (C::kWarpsN == 1) {
    OwnScores(shared, stage, at, s);
  } else {
    static_assert(C::kTilesM == 1);
    float own[1][C::kKeyPairs * 2][4];
    OwnScores(shared, stage, at, own);
    float4* row = shared.scores + at.m * (kTileKeys / 8) * 32 + at.lane;
#pragma unroll
    for (int j = 0; j < C::kKeyPairs * 2; ++j) {
      row[(at.n * C::kKeyPairs * 2 + j) * 32] = {own[0][j][0], own[0][j][1], own[0][j][2],
                                                 own[0][j][3]};
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTileKeys / 8; ++j) {
      const float4 x = row[j * 32];
      s[0][j][0] = x.x, s[0][j][1] = x.y, s[0][j][2] = x.z, s[0][j][3] = x.w;
    }
  }
}

// Turns the scores of 16 queries into weights and rescales the state to their new maximum.
template <typename C>
__device__ __forceinline__ void Softmax(float (&s)[kTileKeys / 8][4], int i, FlashState<C>& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = kMinusInfinity;
#pragma unroll
    for (int j = 0; j < kTileKeys / 8; ++j) {
      largest = fmaxf(largest, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    }
    largest = fmaxf(largest, ShuffleXor(largest, 1));
    largest = fmaxf(largest, ShuffleXor(largest, 2));
    const float maximum = NextMaximum(state.m[i][half], largest);
    const float base = WeightBase(maximum);
    const float rescale = Exp2(__fsub_rn(state.m[i][half], base));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kTileKeys / 8; ++j) {
      s[j][2 * half] = Exp2(__fsub_rn(s[j][2 * half], base));
      s[j][2 * half + 1] = Exp2(__fsub_rn(s[j][2 * half + 1], base));
      sum = __fadd_rn(sum, __fadd_rn(s[j][2 * half], s[j][2 * half + 1]));
    }
    sum = __fadd_rn(sum, ShuffleXor(sum, 1));
    sum = __fadd_rn(sum, ShuffleXor(sum, 2));
    state.m[i][half] = maximum;
    state.l[i][half] = __fmaf_rn(state.l[i][half], rescale, sum);
#pragma unroll
    for (int j = 0; j < C::kOwnDimPairs * 2; ++j) {
      float(&acc)[4] = state.acc[i][j / 2][j % 2];
      acc[2 * half] = __fmul_rn(acc[2 * half], rescale);
      acc[2 * half + 1] = __fmul_rn(acc[2 * half + 1], rescale);
    }
  }
}

// Accumulates the weighted values of the tile's keys.
template <typename C>
__device__ __forceinline__ void AddValues(const SharedTile<C>& shared, int stage, const Lane<C>& at,
                                          const float (&p)[C::kTilesM][kTileKeys / 8][4],
                                          FlashState<C>& state) {
  using T = typename C::T;
#pragma unroll
  for (int k = 0; k < kTileKeys / 16; ++k) {
    uint32_t a[C::kTilesM][4];
#pragma unroll
    for (int i = 0; i < C::kTilesM; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float(&pair)[4] = p[i][2 * k + r / 2];
        a[i][r] = PackPair<T>(pair[r % 2 * 2], pair[r % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int pair = 0; pair < C::kOwnDimPairs; ++pair) {
      if (!at.Owns(pair)) continue;
      const int column = (pair * C::kWarpsN + at.n) * 16 + at.lane / 16 * 8;
      uint32_t b[4];
      const int key = k * 16 + at.lane % 16;
      LdMatrixTransposed(&shared.v[stage][key][C::Column(key, column)], b);
#pragma unroll
      for (int i = 0; i < C::kTilesM; ++i) {
        Mma<T>(state.acc[i][pair][0], a[i], b[0], b[1]);
        Mma<T>(state.acc[i][pair][1], a[i], b[2], b[3]);
      }
    }
  }
}

// The sets of keys of a tile that are visible to the accumulators' queries.
template <typename C>
struct Visible {
  uint64_t keys[C::kTilesM][2];

  // `visible_of` returns the set of a query of the block's tile.
  template <typename VisibleOf>
  __device__ __forceinline__ void Find(const Lane<C>& at, int tile, const VisibleOf& visible_of) {
#pragma unroll
    for (int i = 0; i < C::kTilesM; ++i) {
      keys[i][0] = visible_of(at.Query(i, 0), tile);
      keys[i][1] = visible_of(at.Query(i, 1), tile);
    }
  }
  __device__ __forceinline__ void ApplyMask(const Lane<C>& at,
                                            float (&s)[C::kTilesM][kTileKeys / 8][4]) const {
#pragma unroll
    for (int i = 0; i < C::kTilesM; ++i) {
      const uint64_t own[2] = {keys[i][0] >> (at.lane % 4 * 2), keys[i][1] >> (at.lane % 4 * 2)};
#pragma unroll
      for (int j = 0; j < kTileKeys / 2; ++j) {
        const int key = j / 4 * 8 + j % 2;
        if ((own[j / 2 % 2] >> key & 1) == 0) s[i][j / 4][j % 4] = kMinusInfinity;
      }
    }
  }
};

// One step: accumulates a tile that has arrived.
template <typename C, typename VisibleOf>
__device__ __forceinline__ void RunTile(SharedTile<C>& shared, int tile, bool masked,
                                        const Lane<C>& at, const VisibleOf& visible_of,
                                        FlashState<C>& state) {
  const int stage = tile % C::kStages;
  float s[C::kTilesM][kTileKeys / 8][4];
  Visible<C> visible;
  if (masked) visible.Find(at, tile, visible_of);
  AllScores(shared, stage, at, s);
  if (masked) visible.ApplyMask(at, s);
#pragma unroll
  for (int i = 0; i < C::kTilesM; ++i) Softmax<C>(s[i], i, state);
  AddValues(shared, stage, at, s, state);
}

// Processes tiles, of which the first are in flight, and calls finish(chunk) after the last tile of
// each chunk and of the run. At the end no thread uses the shared memory any more.
template <typename C, typename VectorOf, typename VisibleOf, typename Finish>
__device__ __forceinline__ void RunTiles(const AttentionArgs& args, SharedTile<C>& shared,
                                         const TileRun& run, const VectorOf& vector_of,
                                         const VisibleOf& visible_of, FlashState<C>& state,
                                         const Finish& finish) {
  const Lane<C> at;
  [[maybe_unused]] uint8_t scale = 0;
  if constexpr (C::kExpands) {
    if (run.begin < run.end) scale = LoadScale(args, shared, run.begin);
  }
  __syncthreads();
  int chunk = run.chunk;
  int chunk_end = ChunkBegin(chunk + 1) / kTileKeys;
  for (int tile = run.begin; tile < run.end; ++tile) {
    CpAsyncWaitGroup<C::kStages - 2>();
    if constexpr (C::kExpands) {
      shared.scales[threadIdx.x] = scale;
      __syncthreads();
      ExpandTile(shared, tile);
    }
    __syncthreads();
    if (tile + C::kStages - 1 < run.end) StartTile(args, shared, tile + C::kStages - 1);
    CpAsyncCommitGroup();
    const int ahead = tile + C::kStages;
    int vector = kNoVector;
    if (threadIdx.x < kTileKeys && ahead < run.end) {
      vector = vector_of(ahead * kTileKeys + threadIdx.x);
    }
    if constexpr (C::kExpands) {
      if (tile + 1 < run.end) scale = LoadScale(args, shared, tile + 1);
    }
    RunTile(shared, tile, (tile + 1) * kTileKeys > run.full_end, at, visible_of, state);
    if (threadIdx.x < kTileKeys) shared.vectors[ahead % kVectorRing][threadIdx.x] = vector;
    if (tile + 1 == chunk_end || tile + 1 == run.end) {
      finish(chunk);
      ++chunk;
      chunk_end = ChunkBegin(chunk + 1) / kTileKeys;
    }
  }
  __syncthreads();
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_TILE_CUH_
