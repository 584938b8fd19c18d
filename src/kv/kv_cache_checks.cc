// What is checked of the cache, not changed: integrity, audit, hashes.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/math.h"
#include "compute/backend.h"
#include "kv/kv_cache.h"

namespace talon {
namespace {

uint64_t Fnv1a(uint64_t hash, std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3ull;
  return hash;
}

constexpr uint64_t kFnvStart = 0xcbf29ce484222325ull;

}  // namespace

Status KvCache::CheckIntegrity(std::span<const Sequence* const> sequences) const {
  TALON_RETURN_IF_ERROR(pool_.CheckIntegrity());
  std::map<int32_t, int> uses;
  for (const Sequence* sequence : sequences) {
    const int expected = CeilDiv(sequence->committed_len, shape_.block_size);
    if (static_cast<int>(sequence->blocks.size()) != expected) {
      return Internal("kv: sequence {} has {} blocks for {} tokens", sequence->id,
                      sequence->blocks.size(), sequence->committed_len);
    }
    if (static_cast<int>(sequence->tokens.size()) < sequence->committed_len) {
      return Internal("kv: sequence {} has {} tokens, {} committed", sequence->id,
                      sequence->tokens.size(), sequence->committed_len);
    }
    for (const int32_t block : sequence->blocks) ++uses[block];
  }
  int used = 0;
  for (int32_t block = 0; block < pool_.num_blocks(); ++block) {
    const auto at = uses.find(block);
    const int expected = at == uses.end() ? 0 : at->second;
    if (pool_.references(block) != expected) {
      return Internal("kv: block {} has {} references, {} users", block, pool_.references(block),
                      expected);
    }
    used += expected > 0 ? 1 : 0;
  }
  if (used != used_blocks()) return Internal("kv: {} blocks used, {} counted", used_blocks(), used);
  return CheckTails(sequences);
}

Status KvCache::CheckTails(std::span<const Sequence* const> sequences) const {
  std::set<int32_t> seen(free_tails_.begin(), free_tails_.end());
  for (const Sequence* sequence : sequences) {
    if (sequence->tail_len < 0 || sequence->tail_len > options_.tail_rows ||
        (sequence->tail_first < 0 && sequence->tail_len > 0)) {
      return Internal("kv: sequence {} has a tail of {} tokens, room for {}", sequence->id,
                      sequence->tail_len, sequence->tail_first < 0 ? 0 : options_.tail_rows);
    }
    if (sequence->tail_first >= 0 && !seen.insert(sequence->tail_first).second) {
      return Internal("kv: tail at row {} is free or shared (sequence {})", sequence->tail_first,
                      sequence->id);
    }
  }
  if (static_cast<int>(seen.size()) == options_.tail_regions) return OkStatus();
  return Internal("kv: {} tails free or used, {} exist", seen.size(), options_.tail_regions);
}

uint64_t KvCache::SlotHash(int32_t slot) const {
  const size_t head_bytes = shape_.head_dim * DTypeSize(shape_.dtype);
  const size_t tile_bytes = shape_.TileElements() * DTypeSize(shape_.dtype);
  const size_t start = static_cast<size_t>(slot / shape_.block_size) * shape_.BlockBytes() +
                       static_cast<size_t>(slot % shape_.block_size) * head_bytes;
  std::vector<uint8_t> bytes(head_bytes);
  uint64_t hash = kFnvStart;
  for (const KvLayer& layer : layers_) {
    for (const void* array : {layer.k_blocks, layer.v_blocks}) {
      for (int head = 0; head < shape_.kv_heads; ++head) {
        const auto* source = static_cast<const uint8_t*>(array) + start + head * tile_bytes;
        backend_->CopyOut(bytes.data(), source, head_bytes);
        hash = Fnv1a(hash, bytes);
      }
    }
  }
  return hash;
}

void KvCache::CopyAudit(int32_t from_block, int32_t to_block, int tokens) {
  std::copy_n(audit_.begin() + static_cast<int64_t>(from_block) * shape_.block_size, tokens,
              audit_.begin() + static_cast<int64_t>(to_block) * shape_.block_size);
}

void KvCache::RecordAudit(const Sequence& sequence, int from) {
  for (int t = from; t < sequence.committed_len; ++t) {
    const int32_t slot = SlotOf(sequence, t);
    audit_[slot] = SlotHash(slot);
  }
}

Status KvCache::CheckAudit(const Sequence& sequence) const {
  if (!options_.audit) return OkStatus();
  for (int t = 0; t < sequence.committed_len; ++t) {
    const int32_t slot = SlotOf(sequence, t);
    if (SlotHash(slot) != audit_[slot]) {
      return Internal("kv: audit: committed token {} of sequence {} changed (slot {})", t,
                      sequence.id, slot);
    }
  }
  return OkStatus();
}

uint64_t KvCache::ContentHash(const Sequence& sequence) const {
  uint64_t hash = kFnvStart;
  for (int t = 0; t < sequence.committed_len; ++t) {
    const uint64_t slot_hash = SlotHash(SlotOf(sequence, t));
    hash = Fnv1a(hash, {reinterpret_cast<const uint8_t*>(&slot_hash), sizeof(slot_hash)});
  }
  return hash;
}

}  // namespace talon
