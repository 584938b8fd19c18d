// The size of a drafter's own KV cache.
#ifndef TALON_SPEC_DRAFT_CACHE_H_
#define TALON_SPEC_DRAFT_CACHE_H_

#include <algorithm>

#include "compute/dtype.h"

namespace talon {

struct DraftCacheShape {
  int max_length = 0;  // tokens of a sequence
  int max_sequences = 1;
  int kv_tokens = 0;  // tokens of all sequences together; 0: as many as they can have
  int block_size = 16;
  DType kv_dtype = DType::kBF16;
  bool prefix_index = false;

  int NumBlocks() const {
    const int most = max_sequences * (max_length / block_size + 1);
    // The last block of each sequence is partly used, and one may be copied.
    return kv_tokens == 0 ? most : std::min(most, kv_tokens / block_size + 2 * max_sequences);
  }
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFT_CACHE_H_
