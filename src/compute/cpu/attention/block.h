// Attention of a block of queries over one kv head: tile by tile, split by split.
#ifndef TALON_COMPUTE_CPU_ATTENTION_BLOCK_H_
#define TALON_COMPUTE_CPU_ATTENTION_BLOCK_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/math.h"
#include "compute/cpu/attention/kernels.h"
#include "compute/cpu/attention/plan.h"
#include "compute/host/host_memory.h"
#include "compute/kv/kv_units.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"
#include "compute/pass_plan.h"

namespace talon {

class BlockMasses;

struct AttentionCall {
  const PassPlan* pass = nullptr;
  const AttentionPlan* plan = nullptr;
  const AttentionKernels* kernels = nullptr;
  MatrixView q;    // [rows, heads * head_dim]
  MatrixView out;  // the same shape
  KvShape shape;
  int layer_index = 0;
  KvLayer layer;
  float scale = 1;
  const float* sinks = nullptr;  // [heads], or null
  // Where the scores by attention go that the pass requests, [kv_heads, scored blocks], and what
  // collects them; null: none.
  MatrixView scores = {};
  BlockMasses* masses = nullptr;

  int heads() const { return q.cols / shape.head_dim; }
  int group() const { return heads() / shape.kv_heads; }
};

// The running result of one query: the sum of 2^(score - max) and the values weighted so.
struct Running {
  float* max;
  float* sum;
  float* values;  // [dim]
};

// total += part. The only way in which splits come together, so their order is all that counts.
void MergeRunning(const Running& part, int dim, const Running& total);
void CopyRunning(const Running& from, int dim, const Running& to);
// The head's sink, where there is one, joins the denominator: once for a row, after its last split.
void AddSink(const AttentionCall& call, int head, int dim, const Running& total);
void WriteOutput(const Running& total, int head_dim, float* out);

// Results of the splits of (row, query head), kept apart until they are merged.
struct AttentionPartials {
  std::vector<float> max;
  std::vector<float> sum;
  std::vector<float> values;  // [.., dim]

  void Reserve(int64_t count, int dim);
  Running At(const AttentionCall& call, const AttentionRow& row, int split, int head);
};

// Memory handed out in order and taken back all at once. What is used together lies together:
// arrays at large round distances would compete for the same lines of the first-level cache.
class FloatArena {
 public:
  void Reserve(size_t floats);
  void Clear() { used_ = 0; }
  // 64-byte aligned, uninitialised. REQUIRES: reserved.
  float* Take(size_t floats);
  // Floats that Take(floats) uses up.
  static size_t Rounded(size_t floats) { return RoundUp(floats, 16); }

 private:
  Buffer memory_;
  size_t used_ = 0;
};

// Queries that go through a tile together: few, so that their scores stay in the first-level cache.
inline constexpr int kChunkQueries = 24;

// One thread's tiles. Sized for the widest operand type.
struct AttentionTiles {
  float* scores;         // [chunk, 128]
  float* probs;          // [chunk, 128], operand type
  float* packed_keys;    // those of the tile that are shared
  float* packed_values;  // the same
  float* own_packed;     // one row's own keys or values
  float* gathered;       // those of either that are not read in place, then as ordered units
  float* row_values;     // [dim], one query's
  float rescale[kChunkQueries];
  int32_t firsts[kChunkQueries];
  int32_t counts[kChunkQueries];

  void Place(int dim, FloatArena* arena);
  static size_t Floats(int dim);
};

// Queries of one kv head and their running results.
struct AttentionState {
  struct RowQueries {
    const AttentionRow* row;
    int begin;  // queries [begin, end) of the block
    int end;
    int head;  // query head of the first one
  };
  RowQueries rows[kMaxTileRows];
  float* queries;       // [queries, dim], operand type
  float* values;        // [queries, dim], of the current split
  float* total_values;  // [queries, dim], of all splits so far
  float max[kMaxTileRows];
  float sum[kMaxTileRows];
  float total_max[kMaxTileRows];
  float total_sum[kMaxTileRows];

  void Place(int num_queries, int dim, FloatArena* arena);
  static size_t Floats(int dim);  // at most
};

// Up to kMaxTileRows queries of one item at one kv head: query i is row i / group of the item, head
// i % group of the kv head's group.
class QueryBlock {
 public:
  struct Range {
    int kv_head = 0;
    int first_query = 0;
    int num_queries = 0;
  };
  QueryBlock(const AttentionCall& call, const AttentionItem& item, const Range& range,
             AttentionTiles* tiles, AttentionState* state);

  // The running results over the keys of one split: start, then every tile in order.
  void BeginSplit();
  void RunTile(int tile);
  // Takes them into the total of each query that sees some of the split.
  void MergeSplit(int split);
  void StoreOutputs();
  void StorePartials(int split, AttentionPartials* partials) const;

 private:
  using Side = KvSide;
  // Queries [begin, end), at most kChunkQueries, begin a multiple of that.
  struct Chunk {
    int begin;
    int end;
  };

  using RowQueries = AttentionState::RowQueries;
  std::span<const RowQueries> Rows() const { return {state_->rows, num_rows_}; }
  const RowQueries& RowOf(int query) const {
    return state_->rows[(query + first_head_) / call_.group()];
  }
  // The rows that see least and most of what is shared.
  const AttentionRow& FirstRow() const { return *state_->rows[0].row; }
  const AttentionRow& LastRow() const { return *state_->rows[num_rows_ - 1].row; }
  bool AllShareTile(int tile) const {
    return FirstRow().SharedUnits(tile) == kTileUnits && last_first_key_ <= tile * kTileKeys;
  }
  // Kernels that work on pairs of rows are given whole ones.
  int PaddedEnd(int end) const {
    return kernels_.row_pairs && end == num_queries_ ? RoundUp(end, 2) : end;
  }

  // In a buffer that the next call reuses.
  Running RunningOf(int query) const {
    kernels_.ReadSums(state_->values, query, dim_, tiles_->row_values);
    return {state_->max + query, state_->sum + query, tiles_->row_values};
  }
  Running TotalOf(int query) const {
    return {state_->total_max + query, state_->total_sum + query,
            state_->total_values + query * dim_};
  }

  // Units from `first` of the tile on, and where the product finds them.
  struct UnitRun {
    int first;
    int count;
    const KvTile* in_place;  // if direct_
    const float* packed;     // if not
  };

  void FindRows(const AttentionItem& item, int first_query);
  void LoadQueries();
  HostVector PrefixVector(Side side, int key) const {
    const int64_t tile = int64_t{blocks_[key >> block_shift_]} * call_.shape.kv_heads + kv_head_;
    return {side == Side::kKeys ? keys_ : values_,
            (tile << block_shift_) + (key & ((1 << block_shift_) - 1)), vector_bytes_};
  }
  void ReadKey(Side side, const AttentionRow& row, int key, uint8_t* out) const;
  uint8_t* GatheredUnit(int unit) const {
    return reinterpret_cast<uint8_t*>(tiles_->gathered) + unit * kUnitKeys * value_bytes_;
  }
  // bf16, which takes half of the room.
  uint16_t* OrderedUnit(int unit) const {
    return reinterpret_cast<uint16_t*>(tiles_->gathered) + (kTileUnits + unit) * kUnitKeys * dim_;
  }
  const void* ExpandPrefix(Side side, int key, int ahead) const;
  KvTile SharedTile(Side side, int tile, int num_units) const;
  void Gather(Side side, const AttentionRow& row, int tile, int first_unit, int end_key,
              KvTile* view) const;
  KvTile OwnTile(Side side, const AttentionRow& row, int tile) const;
  void Prepare(Side side, int ordered, float* packed, KvTile* tile) const;
  // Units of the tile that the cache holds in the order of the kernels.
  int OrderedUnits(int tile, int shared) const {
    if (!call_.shape.in_units()) return 0;
    return std::min(shared, LastRow().PrefixUnits(tile));
  }
  void RunChunk(int tile, const Chunk& chunk);
  // Before the softmax of a chunk's scores replaces them.
  void CollectMasses(int tile, const Chunk& chunk);
  void SharedProducts(Side side, int tile, const Chunk& chunk);
  void OwnProducts(Side side, int tile, const Chunk& chunk);
  void Products(Side side, const Chunk& chunk, const Chunk& queries, const UnitRun& units);
  void Multiply(Side side, const UnitRun& units, const TileProduct& product) const;

  const AttentionCall& call_;
  const AttentionKernels& kernels_;
  AttentionTiles* const tiles_;
  AttentionState* const state_;
  const int kv_head_;
  const int first_head_;  // first head of the group, for query 0
  const int num_queries_;
  size_t num_rows_ = 0;
  int last_first_key_ = 0;  // the largest first_key of its rows
  const int dim_;
  const bool direct_;  // products straight from ordered units
  const int block_shift_;
  const KvVectors keys_;  // in blocks
  const KvVectors values_;
  const size_t vector_bytes_;
  const size_t value_bytes_;  // a vector as the kernels read it
  const int32_t* blocks_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_BLOCK_H_
