// Which of its draft rows a sequence's drafts see: all, or the first and the last ones, and none
// that the draft was not told of.
#ifndef TALON_SPEC_DRAFTERS_HEADS_DRAFT_WINDOW_H_
#define TALON_SPEC_DRAFTERS_HEADS_DRAFT_WINDOW_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/math.h"
#include "kv/prefix_cache.h"
#include "spec/drafter.h"
#include "spec/plan.h"

namespace talon {

// Both sizes are rounded up to whole blocks.
struct DraftWindow {
  int window = 0;  // last rows, 0 = all rows
  int sink = 0;    // first rows
};

// Blocks [first, end) whose rows the target knew and the draft did not: never read.
struct MissingBlocks {
  int first = 0;
  int end = 0;

  // Where a sequence of so many rows can go on: not in the gap, which is forgotten then.
  int BeforeGap(int rows, int block_size) {
    if (rows >= end * block_size) return rows;
    return std::min(rows, std::exchange(*this, {}).first * block_size);
  }
};

// What a draft takes of rows that follow others it was not told of: those from the next block on,
// or none. All blocks from the first that was ever missing are left out. `tokens` are the draft's,
// and `cut` shortens it to so many rows. Without room nothing is taken.
template <typename Cut>
std::span<const int32_t> TakeAfterGap(const CommittedRows& committed,
                                      std::span<const int32_t> tokens, const Cut& cut,
                                      PrefixCache* cache, Sequence* draft, MissingBlocks* missing) {
  const std::span<const int32_t> rows = committed.rows;
  const int block = cache->block_size();
  const int next = RoundUp(committed.first, block);
  const auto skipped = static_cast<size_t>(next - committed.first);
  if (skipped >= rows.size()) return {};
  const int known = draft->committed_len / block * block;
  cut(known);
  draft->tokens.assign(tokens.begin(), tokens.begin() + next);
  if (!cache->Skip(draft, next).ok()) {
    draft->tokens.resize(known);
    return {};
  }
  *missing = {missing->end > 0 ? missing->first : known / block, next / block};
  return rows.subspan(skipped);
}

// The view of `rows` draft rows in `blocks`. It refers to `chosen` where it leaves blocks out.
inline PrefixView VisibleRows(const DraftWindow& size, const MissingBlocks& missing_blocks,
                              std::span<const int32_t> blocks, int rows, int block_size,
                              std::vector<int32_t>* chosen) {
  const int sinks = CeilDiv(size.sink, block_size);
  const int window = (rows - size.window) / block_size;  // its first block
  const bool windowed = size.window > 0 && window > sinks;
  if (!windowed && missing_blocks.end == 0) return {blocks, rows};
  chosen->clear();
  for (int i = 0; i < static_cast<int>(blocks.size()); ++i) {
    const bool outside = windowed && i >= sinks && i < window;
    const bool missing = i >= missing_blocks.first && i < missing_blocks.end;
    if (!outside && !missing) chosen->push_back(blocks[i]);
  }
  const auto left_out = static_cast<int>(blocks.size() - chosen->size());
  return {*chosen, rows - left_out * block_size};
}

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_HEADS_DRAFT_WINDOW_H_
