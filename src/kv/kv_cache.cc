#include "kv/kv_cache.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/backend.h"

namespace talon {
namespace {

size_t AlignUp(size_t bytes) { return RoundUp(bytes, 64); }

// K and V of a layer's blocks.
size_t BlocksBytes(const KvShape& shape) {
  return 2 * AlignUp(shape.BlockBytes() * shape.num_blocks);
}

// All else of a layer: staging and summaries.
size_t SideBytes(const KvShape& shape) {
  const auto blocks = static_cast<size_t>(shape.num_blocks);
  const size_t summaries =
      2 * AlignUp(shape.SummaryBytes() * blocks) + AlignUp(shape.NormBytes() * blocks);
  return 2 * AlignUp(shape.RowBytes() * shape.staging_rows) + (shape.key_summaries ? summaries : 0);
}

// Takes the arrays of one layer from the two regions of memory.
KvLayer TakeArrays(const KvShape& shape, uint8_t** blocks, uint8_t** side) {
  const auto take = [](uint8_t** memory, size_t bytes) {
    uint8_t* taken = *memory;
    *memory += AlignUp(bytes);
    return taken;
  };
  KvLayer arrays;
  arrays.k_blocks = take(blocks, shape.BlockBytes() * shape.num_blocks);
  arrays.v_blocks = take(blocks, shape.BlockBytes() * shape.num_blocks);
  arrays.k_staged = take(side, shape.RowBytes() * shape.staging_rows);
  arrays.v_staged = take(side, shape.RowBytes() * shape.staging_rows);
  if (shape.key_summaries) {
    arrays.key_max = take(side, shape.SummaryBytes() * shape.num_blocks);
    arrays.key_min = take(side, shape.SummaryBytes() * shape.num_blocks);
    arrays.key_norm = reinterpret_cast<float*>(take(side, shape.NormBytes() * shape.num_blocks));
  }
  return arrays;
}

}  // namespace

Result<std::unique_ptr<KvCache>> KvCache::Create(Backend* backend, const KvShape& shape,
                                                 Metrics* metrics, const KvOptions& options) {
  if (shape.num_blocks <= 0) return InvalidArgument("kv: {} blocks", shape.num_blocks);
  const int b = shape.block_size;
  if (b < 8 || b > 64 || (b & (b - 1)) != 0) {
    return InvalidArgument("kv: block size {}, must be 8, 16, 32 or 64", b);
  }
  if (options.tail_regions < 0 || options.tail_rows < 0) {
    return InvalidArgument("kv: {} tails of {} rows", options.tail_regions, options.tail_rows);
  }
  std::unique_ptr<KvCache> cache(new KvCache(backend, shape, metrics, options));
  const size_t blocks_bytes = BlocksBytes(cache->shape_) * shape.num_layers;
  TALON_ASSIGN_OR_RETURN(cache->blocks_,
                         backend->Allocate(blocks_bytes, options.offload ? Placement::kOffloaded
                                                                         : Placement::kDevice));
  TALON_ASSIGN_OR_RETURN(cache->side_,
                         backend->Allocate(SideBytes(cache->shape_) * shape.num_layers));
  auto* blocks = static_cast<uint8_t*>(cache->blocks_.data());
  auto* side = static_cast<uint8_t*>(cache->side_.data());
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    cache->layers_.push_back(TakeArrays(cache->shape_, &blocks, &side));
  }
  cache->audit_.Attach(cache->view());
  if (options.offload && options.view_blocks > 0) {
    TALON_RETURN_IF_ERROR(
        cache->copies_.Allocate(backend, cache->view(), options.tail_regions, options.view_blocks));
  }
  return cache;
}

KvCache::KvCache(Backend* backend, const KvShape& shape, Metrics* metrics, const KvOptions& options)
    : backend_(backend),
      ops_(options.ops != nullptr ? options.ops : backend->kv_ops()),
      shape_(shape),
      metrics_(metrics),
      staging_({.layers = shape.num_layers,
                .row_bytes = 2 * shape.RowBytes(),
                .shared_rows = shape.staging_rows,
                .tail_regions = options.tail_regions,
                .tail_rows = options.tail_rows},
               metrics),
      audit_(backend, options.audit),
      prefix_(options.prefix_index, shape.block_size, &pool_),
      pool_(shape.num_blocks, [this](int32_t block) {
        prefix_.Forget(block);
        metrics_->Add(Counter::kKvEvictions, 1);
      }) {
  shape_.layout = backend->BlockLayout(shape_);
  shape_.staging_rows += options.tail_regions * options.tail_rows;
}

// The next token goes into a block that others use, or may.
bool KvCache::WritesToShared(const Sequence& sequence) const {
  if (sequence.committed_len % shape_.block_size == 0) return false;
  const int32_t last = sequence.blocks.back();
  return pool_.references(last) > 1 || prefix_.Knows(last);
}

int KvCache::BlocksNeeded(const Sequence& sequence, int count) const {
  const bool copies_last = count > 0 && WritesToShared(sequence);
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
  if (count > 0 && WritesToShared(sequence)) {
    reservation.replaces_last_block = true;
    ops_->CopyBlock(view(), table.back(), *fresh, used_in_last);
    CountBytes(Counter::kKvBytesWritten, used_in_last, "copy");
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
  CountBytes(Counter::kKvBytesWritten, reservation.slots.size(), kind);
  const int from = sequence->committed_len;
  auto fresh = reservation.new_blocks.begin();
  if (reservation.replaces_last_block && count > 0) {
    audit_.Copy(sequence->blocks.back(), *fresh, from % shape_.block_size);
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
  if (count > 0) sequence->tail_len = 0;
  if (shape_.key_summaries) SummariseFilled(*sequence, from);
  if (audit_.is_on()) CopyCommitted();
  audit_.Record(*sequence, from);
  prefix_.Learn(sequence);
}

void KvCache::CountBytes(Counter counter, size_t rows, const char* kind) {
  if (rows == 0) return;
  metrics_->Add(counter, static_cast<int64_t>(shape_.BytesPerToken() * rows), kind);
}

void KvCache::Cancel(Reservation&& reservation) {
  for (const int32_t block : reservation.new_blocks) pool_.Release(block);
  reservation = {};
}

// Blocks that tokens [from, C) filled.
void KvCache::SummariseFilled(const Sequence& sequence, int from) {
  const int first = from / shape_.block_size;
  const int end = sequence.committed_len / shape_.block_size;
  if (first >= end) return;
  ops_->SummariseBlocks(view(), std::span(sequence.blocks).subspan(first, end - first));
}

Status KvCache::Commit(Sequence* sequence, std::span<const int32_t> rows) {
  TALON_RETURN_IF_ERROR(staging_.CheckStaged(rows));
  const int count = static_cast<int>(rows.size());
  auto reservation = Reserve(*sequence, count);
  if (!reservation.ok()) return reservation.status().WithContext("no_blocks");
  if (const int fault = std::exchange(fault_after_layers_, -1); fault >= 0) {
    ops_->CommitRows(view(), rows, reservation->slots, fault);
    Cancel(std::move(*reservation));
    return Internal("commit_failed: fault injected at layer {}", fault);
  }
  committed_rows_.insert(committed_rows_.end(), rows.begin(), rows.end());
  committed_slots_.insert(committed_slots_.end(), reservation->slots.begin(),
                          reservation->slots.end());
  Advance(sequence, std::move(*reservation), count, "commit");
  return OkStatus();
}

void KvCache::CopyCommitted() {
  if (committed_rows_.empty()) return;
  ops_->CommitRows({shape_, layers_}, committed_rows_, committed_slots_, shape_.num_layers);
  committed_rows_.clear();
  committed_slots_.clear();
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
  ops_->CopySlots(view(), from, to);
  CountBytes(Counter::kKvBytesWritten, from.size(), "copy");
  Advance(sequence, std::move(reservation), static_cast<int>(path.size()), "tree");
  return OkStatus();
}

Status KvCache::AppendTail(Sequence* sequence, std::span<const int32_t> path) {
  TALON_CHECK(sequence->tail_first >= 0, "sequence {} has no tail", sequence->id);
  const int32_t base = sequence->tail_first + sequence->tail_len;
  std::vector<int32_t> rows, from, to;
  for (size_t i = 0; i < path.size(); ++i) {
    TALON_CHECK(path[i] >= static_cast<int32_t>(i), "not an ascending path");
    rows.push_back(base + path[i]);
    if (path[i] == static_cast<int32_t>(i)) continue;
    from.push_back(rows.back());
    to.push_back(base + static_cast<int32_t>(i));
  }
  TALON_RETURN_IF_ERROR(staging_.CheckStaged(rows));
  ops_->CopyStaged(view(), from, to);
  CountBytes(Counter::kKvBytesStaged, from.size(), "tail");
  sequence->tail_len += static_cast<int>(path.size());
  return OkStatus();
}

Result<std::vector<int32_t>> KvCache::CopyToView(Sequence* sequence,
                                                 std::span<const int32_t> block_ids) {
  TALON_RETURN_IF_ERROR(copies_.CheckFits(block_ids));
  TALON_RETURN_IF_ERROR(staging_.OpenTail(sequence));
  return copies_.Copy(view(), block_ids, staging_.RegionOf(*sequence));
}

Status KvCache::AttachCopy(Sequence* sequence, int32_t block, int count) {
  TALON_CHECK(sequence->committed_len % shape_.block_size == 0 && count < shape_.block_size);
  pool_.AddReference(block);  // so that the allocation does not take it back
  auto fresh = pool_.Allocate(1);
  if (fresh.ok()) {
    ops_->CopyBlock(view(), block, fresh->front(), count);
    audit_.Copy(block, fresh->front(), count);
    sequence->blocks.push_back(fresh->front());
    sequence->committed_len += count;
    CountBytes(Counter::kKvBytesWritten, count, "copy");
  }
  pool_.Release(block);
  return fresh.status();
}

Status KvCache::Rewind(Sequence* sequence, int length) {
  if (length < 0 || length > sequence->committed_len) {
    return InvalidArgument("kv: rewind to {}, committed {} (sequence {})", length,
                           sequence->committed_len, sequence->id);
  }
  CopyCommitted();  // before its blocks get other owners
  metrics_->Add(Counter::kKvRewoundTokens, sequence->committed_len - length);
  const int blocks = CeilDiv(length, shape_.block_size);
  while (static_cast<int>(sequence->blocks.size()) > blocks) {
    pool_.Release(sequence->blocks.back());
    sequence->blocks.pop_back();
  }
  sequence->committed_len = length;
  sequence->indexed_blocks = std::min(sequence->indexed_blocks, length / shape_.block_size);
  sequence->tail_len = 0;
  if (static_cast<int>(sequence->tokens.size()) > length + 1) sequence->tokens.resize(length + 1);
  return OkStatus();
}

Sequence KvCache::Fork(const Sequence& sequence, SequenceId id) {
  Sequence fork = sequence;
  fork.id = id;
  fork.tail_first = -1;
  fork.tail_len = 0;
  fork.tokens.resize(sequence.tokens.size() - sequence.tail_len);
  for (const int32_t block : fork.blocks) pool_.AddReference(block);
  return fork;
}

void KvCache::Free(Sequence* sequence) {
  CopyCommitted();  // before its blocks get other owners
  prefix_.Learn(sequence);
  // Cached blocks are taken back in the order of their release: the last of a sequence first.
  for (auto at = sequence->blocks.rbegin(); at != sequence->blocks.rend(); ++at) {
    pool_.Release(*at);
  }
  sequence->blocks.clear();
  sequence->committed_len = 0;
  sequence->indexed_blocks = 0;
  staging_.CloseTail(sequence);
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
  if (used != pool_.used_blocks()) {
    return Internal("kv: {} blocks used, {} counted", pool_.used_blocks(), used);
  }
  return staging_.CheckTails(sequences);
}

}  // namespace talon
