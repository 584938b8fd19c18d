// The attention work of one pass as plain integers: which rows see which keys, and how the work is
// cut into items for threads. Made once per pass, used by every layer.
//
// Keys are handled by logical index (pass_plan.h) in units of 8, tiles of 128 and splits of 1024.
// What rows of a sequence have in common comes first: the prefix, then the trunk, the chain of
// staged nodes that every later node descends from (a tail of provisional tokens, the root). A unit
// that lies wholly in the prefix is read in place; one that reaches into the trunk is gathered
// once; both are shared by all rows that see all of it. A row's remaining keys are gathered for
// that row alone, so nothing a row may not see ever takes part in its arithmetic. How the work is
// cut changes no bits: a row's partial results are per split and always merge in ascending order.
//
// Layers with a sliding window have a plan of their own: a row's keys begin at first_key, and tiles
// wholly before it are not touched for this row.
#ifndef TALON_COMPUTE_CPU_ATTENTION_PLAN_H_
#define TALON_COMPUTE_CPU_ATTENTION_PLAN_H_

#include <cstdint>
#include <vector>

#include "base/math.h"
#include "compute/kv_view.h"
#include "compute/pass_plan.h"

namespace talon {

inline constexpr int kUnitKeys = 8;  // the smallest block
inline constexpr int kTileKeys = 128;
inline constexpr int kTileUnits = kTileKeys / kUnitKeys;
inline constexpr int kSplitKeys = 1024;
inline constexpr int kSplitTiles = kSplitKeys / kTileKeys;

struct AttentionRow {
  int32_t row = 0;            // row of the pass
  int32_t prefix_len = 0;     // keys of the block list
  int32_t shared_len = 0;     // prefix and the part of the trunk it sees
  int32_t num_keys = 0;       // prefix and ancestors
  int32_t first_key = 0;      // keys before it are outside the window
  int32_t tree_begin = 0;     // first of its num_keys - prefix_len places
  int32_t partial_begin = 0;  // first of its partial results, one a split, if its items are split

  // The row's keys lie in splits [FirstSplit(), EndSplit()).
  int FirstSplit() const { return first_key / kSplitKeys; }
  int EndSplit() const { return CeilDiv(num_keys, kSplitKeys); }
  bool SeesSplit(int split) const { return split >= FirstSplit() && split < EndSplit(); }
  // Units of `tile` that lie wholly in the prefix, or in prefix and trunk.
  int PrefixUnits(int tile) const { return UnitsOf(prefix_len, tile); }
  int SharedUnits(int tile) const { return UnitsOf(shared_len, tile); }
  // The row sees keys [TileFirst, TileKeys) of `tile`; none where TileKeys is 0.
  int TileFirst(int tile) const { return Clamped(first_key, tile); }
  int TileKeys(int tile) const {
    return TileFirst(tile) == kTileKeys ? 0 : Clamped(num_keys, tile);
  }

 private:
  static int Clamped(int key, int tile) {
    const int keys = key - tile * kTileKeys;
    return keys < 0 ? 0 : (keys > kTileKeys ? kTileKeys : keys);
  }
  static int UnitsOf(int keys, int tile) { return Clamped(keys, tile) / kUnitKeys; }
};

// One task: rows [row_begin, row_end) of AttentionPlan::rows, all of one sequence, over the keys of
// kv heads [head_begin, head_end). Either some splits, whose results are kept apart, or all of them
// (split_end = 0).
struct AttentionItem {
  int32_t sequence = 0;
  int32_t head_begin = 0;
  int32_t head_end = 0;
  int32_t row_begin = 0;
  int32_t row_end = 0;
  int32_t split_begin = 0, split_end = 0;
};

struct AttentionPlan {
  std::vector<AttentionRow> rows;    // by sequence, then ascending shared_len
  std::vector<int32_t> tree_places;  // a slot, or ~(staging row)
  std::vector<AttentionItem> items;  // the largest first
  std::vector<int32_t> merge_rows;   // indices into rows whose partial results must be merged
  int num_partials = 0;              // per query head
  int64_t row_keys = 0;              // sum of the rows' keys, the measure of work

  // `window`: as in AttentionInput. REQUIRES: every row sees at least one key. Reuses its memory.
  void Build(const PassPlan& pass, const KvShape& shape, int num_threads, int window = 0);

 private:
  void AddRows(const PassPlan& pass, int sequence, int window);
  void AddItems(int sequence, int first_row, int kv_heads, int num_threads);
};

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_PLAN_H_
