#include "kv/audit.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/math.h"
#include "compute/backend.h"
#include "compute/kv/kv_units.h"

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

std::vector<uint64_t> KvAudit::BlockHashes(int32_t block) const {
  const KvShape& shape = view_.shape;
  const size_t head_bytes = shape.VectorBytes();
  const size_t vectors = static_cast<size_t>(shape.kv_heads) * shape.block_size;
  std::vector<uint8_t> bytes(vectors * head_bytes);
  std::vector<uint8_t> scales(shape.quantised() ? vectors : 0);
  std::vector<uint64_t> words(CeilDiv(head_bytes, sizeof(uint64_t)), 0);
  std::vector<uint64_t> hashes(shape.block_size, kHashStart);
  for (const KvLayer& layer : view_.layers) {
    for (const void* array : {layer.k_blocks, layer.v_blocks}) {
      const KvVectors source = BlockVectorsOf(shape, array);
      backend_->CopyOut(bytes.data(), source.elements + block * bytes.size(), bytes.size());
      if (!scales.empty()) {
        backend_->CopyOut(scales.data(), source.scales + block * scales.size(), scales.size());
      }
      if (shape.in_units()) {
        const std::vector<uint8_t> units = bytes;
        ReadUnits(shape, array == layer.k_blocks ? KvSide::kKeys : KvSide::kValues, units.data(),
                  static_cast<int>(vectors), bytes.data());
      }
      for (size_t at = 0; at < bytes.size(); at += head_bytes) {
        std::memcpy(words.data(), bytes.data() + at, head_bytes);
        uint64_t& hash = hashes[at / head_bytes % shape.block_size];
        for (const uint64_t word : words) hash = AddWord(hash, word);
        if (!scales.empty()) hash = AddWord(hash, scales[at / head_bytes]);
      }
    }
  }
  return hashes;
}

void KvAudit::VisitHashes(const Sequence& sequence, int from,
                          const std::function<void(int, int32_t, uint64_t)>& visit) const {
  const int size = view_.shape.block_size;
  std::vector<uint64_t> hashes;
  for (int t = from; t < sequence.committed_len; ++t) {
    const int32_t block = sequence.blocks[t / size];
    if (t == from || t % size == 0) hashes = BlockHashes(block);
    visit(t, block * size + t % size, hashes[t % size]);
  }
}

void KvAudit::Copy(int32_t from_block, int32_t to_block, int tokens) {
  if (!on_) return;
  const int64_t size = view_.shape.block_size;
  std::copy_n(hashes_.begin() + from_block * size, tokens, hashes_.begin() + to_block * size);
}

void KvAudit::Record(const Sequence& sequence, int from) {
  if (!on_) return;
  VisitHashes(sequence, from, [&](int, int32_t slot, uint64_t hash) { hashes_[slot] = hash; });
}

Status KvAudit::Check(const Sequence& sequence) const {
  if (!on_) return OkStatus();
  Status status = OkStatus();
  VisitHashes(sequence, 0, [&](int position, int32_t slot, uint64_t hash) {
    if (hash == hashes_[slot] || !status.ok()) return;
    status = Internal("kv: audit: committed token {} of sequence {} changed (slot {})", position,
                      sequence.id, slot);
  });
  return status;
}

uint64_t KvAudit::ContentHash(const Sequence& sequence) const {
  uint64_t all = kHashStart;
  VisitHashes(sequence, 0, [&](int, int32_t, uint64_t hash) { all = AddWord(all, hash); });
  return all;
}

}  // namespace talon
