// Full blocks that are known by their tokens: what the prefix index learns of sequences, and what
// it gives to new ones. A known block never changes.
#ifndef TALON_KV_PREFIX_CACHE_H_
#define TALON_KV_PREFIX_CACHE_H_

#include <cstdint>
#include <span>

#include "base/status.h"
#include "kv/block_pool.h"
#include "kv/prefix_index.h"
#include "kv/sequence.h"

namespace talon {

class PrefixCache {
 public:
  // `pool` is not owned. Off, it learns and knows nothing.
  PrefixCache(bool on, int block_size, BlockPool* pool)
      : on_(on), block_size_(block_size), pool_(pool) {}

  // Gives a sequence that has known blocks only, or none, those that hold its next tokens, as far
  // as they are known and `max_tokens` allows. Returns its length then.
  int Attach(Sequence* sequence, int max_tokens);
  // The known block that follows the sequence's last (full) one and begins with the sequence's next
  // block_size - 1 tokens, or PrefixIndex::kNone.
  int32_t FindSibling(const Sequence& sequence) const;
  // Makes the sequence `length` tokens long, a multiple of block_size, without K/V for the new
  // ones: they must not be read. Nothing more is learnt of it.
  Status Skip(Sequence* sequence, int length);

  // Learns the sequence's full blocks, as far as their tokens are there.
  void Learn(Sequence* sequence);
  int block_size() const { return block_size_; }
  bool Knows(int32_t block) const { return index_.Knows(block); }
  // The pool takes the block back.
  void Forget(int32_t block) { index_.Remove(block); }

 private:
  std::span<const int32_t> BlockTokens(const Sequence& sequence, int block) const;

  bool on_;
  int block_size_;
  BlockPool* pool_;
  PrefixIndex index_;
};

}  // namespace talon

#endif  // TALON_KV_PREFIX_CACHE_H_
