#include "kv/prefix_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace talon {

std::span<const int32_t> PrefixCache::BlockTokens(const Sequence& sequence, int block) const {
  const auto size = static_cast<size_t>(block_size_);
  return std::span(sequence.tokens).subspan(block * size, size);
}

// Tokens of a step are appended after its commit, so a block may be full before it can be named.
// Where the index knows the same tokens from another sequence, the block gives way to that one: the
// bits are the same.
void PrefixCache::Learn(Sequence* sequence) {
  if (!on_ || sequence->indexed_blocks < 0) return;
  const int named =
      std::min(sequence->committed_len, static_cast<int>(sequence->tokens.size())) / block_size_;
  for (int& i = sequence->indexed_blocks; i < named; ++i) {
    const int32_t parent = i == 0 ? sequence->prefix_root : sequence->blocks[i - 1];
    const auto tokens = BlockTokens(*sequence, i);
    const int32_t known = index_.Find(parent, tokens);
    if (known == PrefixIndex::kNone) {
      index_.Insert(parent, tokens, sequence->blocks[i]);
      pool_->Keep(sequence->blocks[i]);
    } else if (known != sequence->blocks[i]) {
      pool_->AddReference(known);
      pool_->Release(std::exchange(sequence->blocks[i], known));
    }
  }
}

int PrefixCache::Attach(Sequence* sequence, int max_tokens) {
  if (!on_ || sequence->indexed_blocks < 0) return sequence->committed_len;
  TALON_CHECK(sequence->committed_len == sequence->indexed_blocks * block_size_,
              "sequence {} has tokens of its own", sequence->id);
  const int limit = std::min(max_tokens, static_cast<int>(sequence->tokens.size()));
  int32_t parent = sequence->blocks.empty() ? sequence->prefix_root : sequence->blocks.back();
  for (int i = sequence->indexed_blocks; (i + 1) * block_size_ <= limit; ++i) {
    const int32_t block = index_.Find(parent, BlockTokens(*sequence, i));
    if (block == PrefixIndex::kNone) break;
    pool_->AddReference(block);
    sequence->blocks.push_back(block);
    parent = block;
  }
  sequence->indexed_blocks = static_cast<int>(sequence->blocks.size());
  sequence->committed_len = sequence->indexed_blocks * block_size_;
  return sequence->committed_len;
}

int32_t PrefixCache::FindSibling(const Sequence& sequence) const {
  const auto count = static_cast<size_t>(block_size_) - 1;
  const std::span<const int32_t> tokens(sequence.tokens);
  const auto from = static_cast<size_t>(sequence.committed_len);
  if (sequence.indexed_blocks < 0 || tokens.size() < from + count) return PrefixIndex::kNone;
  const int32_t parent = sequence.blocks.empty() ? sequence.prefix_root : sequence.blocks.back();
  return index_.FindBeginning(parent, tokens.subspan(from, count));
}

Status PrefixCache::Skip(Sequence* sequence, int length) {
  const int blocks = length / block_size_;
  const int missing = blocks - static_cast<int>(sequence->blocks.size());
  TALON_CHECK(length % block_size_ == 0 && missing > 0 &&
              sequence->committed_len % block_size_ == 0);
  TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> fresh, pool_->Allocate(1));
  for (int i = 1; i < missing; ++i) pool_->AddReference(fresh.front());
  sequence->blocks.resize(blocks, fresh.front());
  sequence->committed_len = length;
  sequence->indexed_blocks = -1;
  return OkStatus();
}

}  // namespace talon
