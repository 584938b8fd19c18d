#include "kv/block_pool.h"

#include <utility>

#include "base/check.h"

namespace talon {

BlockPool::BlockPool(int num_blocks, std::function<void(int32_t)> evicted)
    : evicted_(std::move(evicted)),
      references_(num_blocks, 0),
      kept_(num_blocks, false),
      cached_at_(num_blocks) {
  free_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

Result<std::vector<int32_t>> BlockPool::Allocate(int count) {
  if (count > free_blocks()) {
    return ResourceExhausted("kv: need {} blocks, {} free", count, free_blocks());
  }
  while (static_cast<int>(free_.size()) < count) {
    const int32_t block = cached_.front();
    cached_.pop_front();
    kept_[block] = false;
    evicted_(block);
    free_.push_back(block);
  }
  std::vector<int32_t> blocks;
  blocks.reserve(count);
  for (int i = 0; i < count; ++i) {
    blocks.push_back(free_.back());
    free_.pop_back();
    references_[blocks.back()] = 1;
  }
  return blocks;
}

void BlockPool::AddReference(int32_t block) {
  TALON_CHECK(references_[block] > 0 || kept_[block], "block {} is free", block);
  if (references_[block]++ == 0) cached_.erase(cached_at_[block]);
}

void BlockPool::Release(int32_t block) {
  TALON_CHECK(references_[block] > 0, "block {} is free already", block);
  if (--references_[block] > 0) return;
  if (kept_[block]) {
    cached_at_[block] = cached_.insert(cached_.end(), block);
  } else {
    free_.push_back(block);
  }
}

Status BlockPool::CheckIntegrity() const {
  std::vector<bool> listed(references_.size(), false);
  const auto check = [&](int32_t block, bool kept) {
    if (block < 0 || block >= num_blocks() || listed[block]) {
      return Internal("kv: free list holds block {} wrongly or twice", block);
    }
    listed[block] = true;
    if (references_[block] != 0) {
      return Internal("kv: block {} is free with {} references", block, references_[block]);
    }
    if (kept_[block] != kept) return Internal("kv: block {} is on the wrong list", block);
    return OkStatus();
  };
  for (const int32_t block : free_) TALON_RETURN_IF_ERROR(check(block, false));
  for (const int32_t block : cached_) TALON_RETURN_IF_ERROR(check(block, true));
  for (int block = 0; block < num_blocks(); ++block) {
    if (references_[block] == 0 && !listed[block]) return Internal("kv: block {} leaked", block);
  }
  return OkStatus();
}

}  // namespace talon
