// One sequence's tokens and where their K/V is.
#ifndef TALON_KV_SEQUENCE_H_
#define TALON_KV_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/prefix_index.h"

namespace talon {

// While it runs, tokens.size() == committed_len + tail_len + 1: the last token is the root. Changed
// by KvCache and its parts only, but for tokens appended by the engine.
struct Sequence {
  SequenceId id = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;  // [ceil(committed_len / block_size)]
  int committed_len = 0;        // C
  int32_t tail_first = -1;      // first staging row of its tail region, -1 = it has none
  int tail_len = 0;             // P, provisional tokens at positions C, C + 1, ..
  int32_t prefix_root = PrefixIndex::kRoot;  // what its first block follows in the prefix index
  int indexed_blocks = 0;  // leading blocks that the index knows; -1: it must not learn them
};

}  // namespace talon

#endif  // TALON_KV_SEQUENCE_H_
