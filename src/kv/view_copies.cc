#include "kv/view_copies.h"

#include <numeric>

#include "base/math.h"
#include "compute/backend.h"

namespace talon {

Status ViewCopies::Allocate(Backend* backend, const KvView& cache, int regions, int blocks) {
  KvShape shape = cache.shape;
  shape.num_blocks = regions * blocks;
  shape.key_summaries = false;
  const size_t bytes = RoundUp(shape.BlockBytes() * shape.num_blocks, size_t{64});  // aligned
  TALON_ASSIGN_OR_RETURN(memory_, backend->Allocate(2 * bytes * shape.num_layers));
  auto* memory = static_cast<uint8_t*>(memory_.data());
  for (const KvLayer& layer : cache.layers) {
    layers_.push_back({.k_blocks = memory,
                       .v_blocks = memory + bytes,
                       .k_staged = layer.k_staged,
                       .v_staged = layer.v_staged});
    memory += 2 * bytes;
  }
  backend_ = backend;
  blocks_per_view_ = blocks;
  shape_ = shape;
  return OkStatus();
}

Status ViewCopies::CheckFits(std::span<const int32_t> block_ids) const {
  if (layers_.empty()) return ResourceExhausted("kv: there are no copies of views");
  const auto blocks = block_ids.size() / (shape_.num_layers * shape_.kv_heads);
  if (static_cast<int>(blocks) <= blocks_per_view_) return OkStatus();
  return ResourceExhausted("kv: a view of {} blocks, room for {}", blocks, blocks_per_view_);
}

Result<std::vector<int32_t>> ViewCopies::Copy(const KvView& cache,
                                              std::span<const int32_t> block_ids, int region) {
  TALON_RETURN_IF_ERROR(CheckFits(block_ids));
  const int first = region * blocks_per_view_;
  std::vector<int32_t> blocks(block_ids.size() / (shape_.num_layers * shape_.kv_heads));
  std::iota(blocks.begin(), blocks.end(), first);
  backend_->kv_ops()->CopyTiles(cache, block_ids, view(), first);
  return blocks;
}

}  // namespace talon
