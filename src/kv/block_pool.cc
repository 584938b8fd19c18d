#include "kv/block_pool.h"

#include "base/check.h"

namespace talon {

BlockPool::BlockPool(int num_blocks) : references_(num_blocks, 0) {
  free_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

Result<std::vector<int32_t>> BlockPool::Allocate(int count) {
  if (count > free_blocks()) {
    return ResourceExhausted("kv: need {} blocks, {} free", count, free_blocks());
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
  TALON_CHECK(references_[block] > 0, "block {} is free", block);
  ++references_[block];
}

void BlockPool::Release(int32_t block) {
  TALON_CHECK(references_[block] > 0, "block {} is free already", block);
  if (--references_[block] == 0) free_.push_back(block);
}

Status BlockPool::CheckIntegrity() const {
  std::vector<bool> listed(references_.size(), false);
  for (const int32_t block : free_) {
    if (block < 0 || block >= num_blocks() || listed[block]) {
      return Internal("kv: free list holds block {} wrongly or twice", block);
    }
    listed[block] = true;
    if (references_[block] != 0) {
      return Internal("kv: block {} is free with {} references", block, references_[block]);
    }
  }
  for (int block = 0; block < num_blocks(); ++block) {
    if (references_[block] == 0 && !listed[block]) return Internal("kv: block {} leaked", block);
  }
  return OkStatus();
}

}  // namespace talon
