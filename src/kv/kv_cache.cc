#include "kv/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/backend.h"

namespace talon {
namespace {

size_t AlignUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

// K and V of a layer's blocks.
size_t BlocksBytes(const KvShape& shape) {
  return 2 * AlignUp(shape.BlockBytes() * shape.num_blocks);
}

// All else of a layer: staging and summaries.
size_t SideBytes(const KvShape& shape) {
  const auto blocks = static_cast<size_t>(shape.num_blocks);
  const size_t summaries =
      2 * AlignUp(shape.RowBytes() * blocks) + AlignUp(shape.NormBytes() * blocks);
  return 2 * AlignUp(shape.RowBytes() * shape.staging_rows) + (shape.key_summaries ? summaries : 0);
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
  TALON_ASSIGN_OR_RETURN(cache->blocks_, options.offload ? backend->AllocateOffloaded(blocks_bytes)
                                                         : backend->Allocate(blocks_bytes));
  TALON_ASSIGN_OR_RETURN(cache->side_,
                         backend->Allocate(SideBytes(cache->shape_) * shape.num_layers));
  auto* blocks = static_cast<uint8_t*>(cache->blocks_.data());
  auto* side = static_cast<uint8_t*>(cache->side_.data());
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    cache->layers_.push_back(cache->TakeArrays(&blocks, &side));
  }
  if (options.offload && options.view_blocks > 0) {
    TALON_RETURN_IF_ERROR(cache->AllocateViews());
  }
  return cache;
}

KvCache::KvCache(Backend* backend, const KvShape& shape, Metrics* metrics, const KvOptions& options)
    : backend_(backend),
      ops_(backend->kv_ops()),
      shape_(shape),
      metrics_(metrics),
      options_(options),
      pool_(shape.num_blocks,
            [this](int32_t block) {
              index_.Remove(block);
              metrics_->Add(Counter::kKvEvictions, 1);
            }),
      shared_rows_(shape.staging_rows) {
  shape_.staging_rows += options.tail_regions * options.tail_rows;
  for (int i = options.tail_regions - 1; i >= 0; --i) {
    free_tails_.push_back(shared_rows_ + i * options.tail_rows);
  }
  staged_.assign(shape.num_layers, std::vector<uint8_t>(shape_.staging_rows, 0));
  if (options.audit) audit_.resize(static_cast<size_t>(shape.num_blocks) * shape.block_size, 0);
}

KvLayer KvCache::TakeArrays(uint8_t** blocks, uint8_t** side) const {
  const auto take = [](uint8_t** memory, size_t bytes) {
    uint8_t* taken = *memory;
    *memory += AlignUp(bytes);
    return taken;
  };
  KvLayer arrays;
  arrays.k_blocks = take(blocks, shape_.BlockBytes() * shape_.num_blocks);
  arrays.v_blocks = take(blocks, shape_.BlockBytes() * shape_.num_blocks);
  arrays.k_staged = take(side, shape_.RowBytes() * shape_.staging_rows);
  arrays.v_staged = take(side, shape_.RowBytes() * shape_.staging_rows);
  if (shape_.key_summaries) {
    arrays.key_max = take(side, shape_.RowBytes() * shape_.num_blocks);
    arrays.key_min = take(side, shape_.RowBytes() * shape_.num_blocks);
    arrays.key_norm = reinterpret_cast<float*>(take(side, shape_.NormBytes() * shape_.num_blocks));
  }
  return arrays;
}

// The next token goes into a block that others use, or may.
bool KvCache::WritesToShared(const Sequence& sequence) const {
  if (sequence.committed_len % shape_.block_size == 0) return false;
  const int32_t last = sequence.blocks.back();
  return pool_.references(last) > 1 || index_.Knows(last);
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
  if (count > 0) sequence->tail_len = 0;
  if (shape_.key_summaries) SummariseFilled(*sequence, from);
  metrics_->Add(Counter::kKvBytesWritten, static_cast<int64_t>(shape_.BytesPerToken()) * count,
                kind);
  if (options_.audit) RecordAudit(*sequence, from);
  IndexFull(sequence);
}

void KvCache::Cancel(Reservation&& reservation) {
  for (const int32_t block : reservation.new_blocks) pool_.Release(block);
  reservation = {};
}

// Blocks that tokens [from, C) filled.
void KvCache::SummariseFilled(const Sequence& sequence, int from) const {
  const int first = from / shape_.block_size;
  const int end = sequence.committed_len / shape_.block_size;
  if (first >= end) return;
  ops_->SummariseBlocks(view(), std::span(sequence.blocks).subspan(first, end - first));
}

Status KvCache::CheckFits(const StagedRows& rows) const {
  if (rows.first < shared_rows_) {
    if (rows.end() <= shared_rows_) return OkStatus();
    return ResourceExhausted("overflow: {} rows, staging holds {}", rows.end(), shared_rows_);
  }
  const int within = options_.tail_rows > 0 ? (rows.first - shared_rows_) % options_.tail_rows : 0;
  if (rows.end() <= shape_.staging_rows && within + rows.count <= options_.tail_rows) {
    return OkStatus();
  }
  return ResourceExhausted("overflow: {} rows after {}, a tail holds {}", rows.count, within,
                           options_.tail_rows);
}

Status KvCache::BeginStaging(std::span<const StagedRows> rows) {
  if (!staging_clear()) return FailedPrecondition("busy: staging still holds {} rows", num_staged_);
  int count = 0;
  for (const StagedRows& range : rows) {
    TALON_RETURN_IF_ERROR(CheckFits(range));
    count += range.count;
  }
  staging_.assign(rows.begin(), rows.end());
  num_staged_ = count;
  metrics_->Add(Counter::kNworStagedTokens, count);
  return OkStatus();
}

Status KvCache::BeginStaging(int rows) {
  const StagedRows first{0, rows};
  return BeginStaging(std::span(&first, 1));
}

void KvCache::MarkStaged(int layer, std::span<const int32_t> rows) {
  for (const int32_t row : rows) staged_[layer][row] = 1;
  metrics_->Add(Counter::kNworStageOperations, static_cast<int64_t>(rows.size()));
}

void KvCache::MarkAllStaged() {
  for (auto& layer : staged_) {
    for (const StagedRows& rows : staging_) std::fill_n(layer.begin() + rows.first, rows.count, 1);
  }
  metrics_->Add(Counter::kNworStageOperations,
                static_cast<int64_t>(num_staged_) * shape_.num_layers);
}

void KvCache::ClearStaging() {
  for (auto& layer : staged_) {
    for (const StagedRows& rows : staging_) std::fill_n(layer.begin() + rows.first, rows.count, 0);
  }
  staging_.clear();
  num_staged_ = 0;
}

Status KvCache::CheckStaged(std::span<const int32_t> rows) const {
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    for (const int32_t row : rows) {
      if (row < 0 || row >= shape_.staging_rows || staged_[layer][row] == 0) {
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
  ops_->CommitRows(view(), rows, reservation->slots, layers);
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
  ops_->CopySlots(view(), from, to);
  metrics_->Add(Counter::kKvBytesWritten,
                static_cast<int64_t>(shape_.BytesPerToken() * from.size()), "copy");
  Advance(sequence, std::move(reservation), static_cast<int>(path.size()), "commit");
  return OkStatus();
}

Status KvCache::OpenTail(Sequence* sequence) {
  if (sequence->tail_first >= 0) return OkStatus();
  if (free_tails_.empty()) {
    return ResourceExhausted("kv: all {} tails are taken (sequence {})", options_.tail_regions,
                             sequence->id);
  }
  sequence->tail_first = free_tails_.back();
  sequence->tail_len = 0;
  free_tails_.pop_back();
  return OkStatus();
}

Status KvCache::AppendTail(Sequence* sequence, std::span<const int32_t> path) {
  TALON_CHECK(sequence->tail_first >= 0, "sequence {} has no tail", sequence->id);
  const int32_t base = sequence->tail_first + sequence->tail_len;
  std::vector<int32_t> from, to;
  for (size_t i = 0; i < path.size(); ++i) {
    TALON_CHECK(path[i] >= static_cast<int32_t>(i), "not an ascending path");
    from.push_back(base + path[i]);
    to.push_back(base + static_cast<int32_t>(i));
  }
  TALON_RETURN_IF_ERROR(CheckStaged(from));
  ops_->CopyStaged(view(), from, to);
  sequence->tail_len += static_cast<int>(path.size());
  return OkStatus();
}

void KvCache::CloseTail(Sequence* sequence) {
  if (sequence->tail_first >= 0) free_tails_.push_back(sequence->tail_first);
  sequence->tail_first = -1;
  sequence->tail_len = 0;
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
  IndexFull(sequence);
  // Cached blocks are taken back in the order of their release: the last of a sequence first.
  for (auto at = sequence->blocks.rbegin(); at != sequence->blocks.rend(); ++at) {
    pool_.Release(*at);
  }
  sequence->blocks.clear();
  sequence->committed_len = 0;
  sequence->indexed_blocks = 0;
  CloseTail(sequence);
}

}  // namespace talon
