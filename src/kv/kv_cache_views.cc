// Copies of partial views of offloaded blocks.
#include <numeric>
#include <utility>

#include "compute/backend.h"
#include "kv/kv_cache.h"

namespace talon {

// K and V of every layer, with the staging rows of the cache itself.
Status KvCache::AllocateViews() {
  KvShape shape = shape_;
  shape.num_blocks = options_.tail_regions * options_.view_blocks;
  shape.key_summaries = false;
  const size_t bytes = shape.BlockBytes() * shape.num_blocks;
  TALON_ASSIGN_OR_RETURN(view_memory_, backend_->Allocate(2 * bytes * shape.num_layers));
  auto* memory = static_cast<uint8_t*>(view_memory_.data());
  for (const KvLayer& layer : layers_) {
    view_layers_.push_back({.k_blocks = memory,
                            .v_blocks = memory + bytes,
                            .k_staged = layer.k_staged,
                            .v_staged = layer.v_staged});
    memory += 2 * bytes;
  }
  view_shape_ = shape;
  return OkStatus();
}

Result<std::vector<int32_t>> KvCache::CopyToView(Sequence* sequence,
                                                 std::span<const int32_t> block_ids) {
  const auto count = static_cast<int>(block_ids.size()) / (shape_.num_layers * shape_.kv_heads);
  if (count > options_.view_blocks || view_layers_.empty()) {
    return ResourceExhausted("kv: a view of {} blocks, room for {} (sequence {})", count,
                             view_layers_.empty() ? 0 : options_.view_blocks, sequence->id);
  }
  TALON_RETURN_IF_ERROR(OpenTail(sequence));
  const int region = (sequence->tail_first - shared_rows_) / options_.tail_rows;
  std::vector<int32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), region * options_.view_blocks);
  ops_->CopyTiles(view(), block_ids, views(), region * options_.view_blocks);
  return blocks;
}

}  // namespace talon
