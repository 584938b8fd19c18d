#include "kv/audit.h"

#include <algorithm>
#include <bit>

#include "base/math.h"
#include "compute/backend.h"

namespace talon {
namespace {

constexpr uint64_t kHashStart = 0xcbf29ce484222325ull;

// One changed word always changes the hash; the rotation keeps high bits of two from cancelling.
uint64_t AddWord(uint64_t hash, uint64_t word) {
  return std::rotl((hash ^ word) * 0x9e3779b97f4a7c15ull, 31);
}

}  // namespace

void KvAudit::Attach(const KvView& view) {
  view_ = view;
  if (on_) hashes_.resize(static_cast<size_t>(view.shape.num_blocks) * view.shape.block_size, 0);
}

int32_t KvAudit::SlotOf(const Sequence& sequence, int position) const {
  const int size = view_.shape.block_size;
  return sequence.blocks[position / size] * size + position % size;
}

uint64_t KvAudit::SlotHash(int32_t slot) const {
  const KvShape& shape = view_.shape;
  const size_t head_bytes = shape.head_dim * DTypeSize(shape.dtype);
  const size_t tile_bytes = shape.TileElements() * DTypeSize(shape.dtype);
  const size_t start = static_cast<size_t>(slot / shape.block_size) * shape.BlockBytes() +
                       static_cast<size_t>(slot % shape.block_size) * head_bytes;
  std::vector<uint64_t> words(CeilDiv(head_bytes, sizeof(uint64_t)), 0);
  uint64_t hash = kHashStart;
  for (const KvLayer& layer : view_.layers) {
    for (const void* array : {layer.k_blocks, layer.v_blocks}) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        const auto* source = static_cast<const uint8_t*>(array) + start + head * tile_bytes;
        backend_->CopyOut(words.data(), source, head_bytes);
        for (const uint64_t word : words) hash = AddWord(hash, word);
      }
    }
  }
  return hash;
}

void KvAudit::Copy(int32_t from_block, int32_t to_block, int tokens) {
  if (!on_) return;
  const int64_t size = view_.shape.block_size;
  std::copy_n(hashes_.begin() + from_block * size, tokens, hashes_.begin() + to_block * size);
}

void KvAudit::Record(const Sequence& sequence, int from) {
  if (!on_) return;
  for (int t = from; t < sequence.committed_len; ++t) {
    const int32_t slot = SlotOf(sequence, t);
    hashes_[slot] = SlotHash(slot);
  }
}

Status KvAudit::Check(const Sequence& sequence) const {
  if (!on_) return OkStatus();
  for (int t = 0; t < sequence.committed_len; ++t) {
    const int32_t slot = SlotOf(sequence, t);
    if (SlotHash(slot) != hashes_[slot]) {
      return Internal("kv: audit: committed token {} of sequence {} changed (slot {})", t,
                      sequence.id, slot);
    }
  }
  return OkStatus();
}

uint64_t KvAudit::ContentHash(const Sequence& sequence) const {
  uint64_t hash = kHashStart;
  for (int t = 0; t < sequence.committed_len; ++t) {
    hash = AddWord(hash, SlotHash(SlotOf(sequence, t)));
  }
  return hash;
}

}  // namespace talon
