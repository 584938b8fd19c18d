#include "kv/kv_cache.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"

namespace talon {
namespace {

size_t AlignUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

uint64_t Fnv1a(uint64_t hash, std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3ull;
  return hash;
}

constexpr uint64_t kFnvStart = 0xcbf29ce484222325ull;

}  // namespace

Result<std::unique_ptr<KvCache>> KvCache::Create(Backend* backend, const KvShape& shape,
                                                 Metrics* metrics, const KvOptions& options) {
  if (shape.num_blocks <= 0) return InvalidArgument("kv: {} blocks", shape.num_blocks);
  const int b = shape.block_size;
  if (b < 8 || b > 64 || (b & (b - 1)) != 0) {
    return InvalidArgument("kv: block size {}, must be 8, 16, 32 or 64", b);
  }
  std::unique_ptr<KvCache> cache(new KvCache(backend, shape, metrics, options));
  const size_t blocks_bytes = AlignUp(shape.BlockBytes() * shape.num_blocks);
  const size_t staged_bytes = AlignUp(shape.RowBytes() * shape.staging_rows);
  const size_t layer_bytes = 2 * (blocks_bytes + staged_bytes);
  TALON_ASSIGN_OR_RETURN(cache->buffer_, backend->Allocate(layer_bytes * shape.num_layers));
  auto* next = static_cast<uint8_t*>(cache->buffer_.data());
  const auto take = [&next](size_t bytes) {
    uint8_t* taken = next;
    next += bytes;
    return taken;
  };
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    KvLayer arrays;
    arrays.k_blocks = take(blocks_bytes);
    arrays.v_blocks = take(blocks_bytes);
    arrays.k_staged = take(staged_bytes);
    arrays.v_staged = take(staged_bytes);
    cache->layers_.push_back(arrays);
  }
  return cache;
}

KvCache::KvCache(Backend* backend, const KvShape& shape, Metrics* metrics, const KvOptions& options)
    : backend_(backend),
      shape_(shape),
      metrics_(metrics),
      options_(options),
      pool_(shape.num_blocks),
      staged_(shape.num_layers, std::vector<uint8_t>(shape.staging_rows, 0)) {
  if (options.audit) audit_.resize(static_cast<size_t>(shape.num_blocks) * shape.block_size, 0);
}

int KvCache::BlocksNeeded(const Sequence& sequence, int count) const {
  const int used_in_last = sequence.committed_len % shape_.block_size;
  const bool copies_last =
      count > 0 && used_in_last != 0 && pool_.references(sequence.blocks.back()) > 1;
  return CeilDiv(sequence.committed_len + count, shape_.block_size) -
         CeilDiv(sequence.committed_len, shape_.block_size) + (copies_last ? 1 : 0);
}

Result<Reservation> KvCache::Reserve(const Sequence& sequence, int count) {
  Reservation reservation;
  const int needed = BlocksNeeded(sequence, count);
  auto blocks = pool_.Allocate(needed);
  if (!blocks.ok()) {
    return ResourceExhausted("{} (sequence {})", blocks.status().message(), sequence.id);
  }
  reservation.new_blocks = std::move(blocks).value();
  const int used_in_last = sequence.committed_len % shape_.block_size;
  std::vector<int32_t> table = sequence.blocks;
  auto fresh = reservation.new_blocks.begin();
  if (count > 0 && used_in_last != 0 && pool_.references(table.back()) > 1) {
    reservation.replaces_last_block = true;
    backend_->CopyBlock(view(), table.back(), *fresh, used_in_last);
    metrics_->Add(Counter::kKvBytesWritten,
                  static_cast<int64_t>(shape_.BytesPerToken()) * used_in_last, "copy");
    table.back() = *fresh++;
  }
  table.insert(table.end(), fresh, reservation.new_blocks.end());
  reservation.slots.reserve(count);
  for (int i = 0; i < count; ++i) {
    const int position = sequence.committed_len + i;
    reservation.slots.push_back(table[position / shape_.block_size] * shape_.block_size +
                                position % shape_.block_size);
  }
  return reservation;
}

void KvCache::Advance(Sequence* sequence, Reservation&& reservation, int count, const char* kind) {
  TALON_CHECK(count >= 0 && count <= static_cast<int>(reservation.slots.size()));
  const int from = sequence->committed_len;
  auto fresh = reservation.new_blocks.begin();
  if (reservation.replaces_last_block && count > 0) {
    if (options_.audit) CopyAudit(sequence->blocks.back(), *fresh, from % shape_.block_size);
    pool_.Release(sequence->blocks.back());
    sequence->blocks.back() = *fresh++;
  }
  const int blocks = CeilDiv(from + count, shape_.block_size);
  while (static_cast<int>(sequence->blocks.size()) < blocks) {
    sequence->blocks.push_back(*fresh++);
  }
  for (; fresh != reservation.new_blocks.end(); ++fresh) pool_.Release(*fresh);
  reservation = {};
  sequence->committed_len = from + count;
  metrics_->Add(Counter::kKvBytesWritten, static_cast<int64_t>(shape_.BytesPerToken()) * count,
                kind);
  if (options_.audit) RecordAudit(*sequence, from);
}

void KvCache::Cancel(Reservation&& reservation) {
  for (const int32_t block : reservation.new_blocks) pool_.Release(block);
  reservation = {};
}

Status KvCache::BeginStaging(int rows) {
  if (!staging_clear())
    return FailedPrecondition("busy: staging still holds {} rows", staged_rows_);
  if (rows > shape_.staging_rows) {
    return ResourceExhausted("overflow: {} rows, staging holds {}", rows, shape_.staging_rows);
  }
  staged_rows_ = rows;
  metrics_->Add(Counter::kNworStagedTokens, rows);
  return OkStatus();
}

void KvCache::MarkStaged(int layer, std::span<const int32_t> rows) {
  for (const int32_t row : rows) staged_[layer][row] = 1;
  metrics_->Add(Counter::kNworStageOperations, static_cast<int64_t>(rows.size()));
}

void KvCache::MarkAllStaged() {
  for (auto& layer : staged_) std::fill_n(layer.begin(), staged_rows_, 1);
  metrics_->Add(Counter::kNworStageOperations,
                static_cast<int64_t>(staged_rows_) * shape_.num_layers);
}

void KvCache::ClearStaging() {
  for (auto& layer : staged_) std::fill_n(layer.begin(), staged_rows_, 0);
  staged_rows_ = 0;
}

Status KvCache::CheckStaged(std::span<const int32_t> rows) const {
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    for (const int32_t row : rows) {
      if (row < 0 || row >= staged_rows_ || staged_[layer][row] == 0) {
        return FailedPrecondition("incomplete: row {} not staged in layer {}", row, layer);
      }
    }
  }
  return OkStatus();
}

Status KvCache::Commit(Sequence* sequence, std::span<const int32_t> rows) {
  TALON_RETURN_IF_ERROR(CheckStaged(rows));
  const int count = static_cast<int>(rows.size());
  auto reservation = Reserve(*sequence, count);
  if (!reservation.ok()) return reservation.status().WithContext("no_blocks");
  const int fault = std::exchange(fault_after_layers_, -1);
  const int layers = fault >= 0 ? fault : shape_.num_layers;
  backend_->CommitRows(view(), rows, reservation->slots, layers);
  if (fault >= 0) {
    Cancel(std::move(*reservation));
    return Internal("commit_failed: fault injected at layer {}", fault);
  }
  Advance(sequence, std::move(*reservation), count, "commit");
  return OkStatus();
}

Status KvCache::CommitReserved(Sequence* sequence, Reservation&& reservation,
                               std::span<const int32_t> path) {
  std::vector<int32_t> from, to;
  for (size_t i = 0; i < path.size(); ++i) {
    TALON_CHECK(path[i] >= static_cast<int32_t>(i), "not an ascending path");
    if (path[i] == static_cast<int32_t>(i)) continue;
    from.push_back(reservation.slots[path[i]]);
    to.push_back(reservation.slots[i]);
  }
  backend_->CopySlots(view(), from, to);
  metrics_->Add(Counter::kKvBytesWritten,
                static_cast<int64_t>(shape_.BytesPerToken() * from.size()), "copy");
  Advance(sequence, std::move(reservation), static_cast<int>(path.size()), "commit");
  return OkStatus();
}

Status KvCache::Rewind(Sequence* sequence, int length) {
  if (length < 0 || length > sequence->committed_len) {
    return InvalidArgument("kv: rewind to {}, committed {} (sequence {})", length,
                           sequence->committed_len, sequence->id);
  }
  metrics_->Add(Counter::kKvRewoundTokens, sequence->committed_len - length);
  const int blocks = CeilDiv(length, shape_.block_size);
  while (static_cast<int>(sequence->blocks.size()) > blocks) {
    pool_.Release(sequence->blocks.back());
    sequence->blocks.pop_back();
  }
  sequence->committed_len = length;
  if (static_cast<int>(sequence->tokens.size()) > length + 1) sequence->tokens.resize(length + 1);
  return OkStatus();
}

Sequence KvCache::Fork(const Sequence& sequence, SequenceId id) {
  Sequence fork = sequence;
  fork.id = id;
  for (const int32_t block : fork.blocks) pool_.AddReference(block);
  return fork;
}

void KvCache::Free(Sequence* sequence) {
  for (const int32_t block : sequence->blocks) pool_.Release(block);
  sequence->blocks.clear();
  sequence->committed_len = 0;
}

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
  return OkStatus();
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
