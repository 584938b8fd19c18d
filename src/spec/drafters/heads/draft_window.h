// Which of its draft rows a sequence's drafts see: all, or the first and the last ones.
#ifndef TALON_SPEC_DRAFTERS_HEADS_DRAFT_WINDOW_H_
#define TALON_SPEC_DRAFTERS_HEADS_DRAFT_WINDOW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/math.h"
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
};

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
