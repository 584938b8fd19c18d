#include "kv/staging.h"

#include <algorithm>
#include <set>
#include <utility>

namespace talon {

StagingArea::StagingArea(const StagingShape& shape, Metrics* metrics)
    : shape_(shape), metrics_(metrics), stored_(shape.layers, 0) {
  for (int i = shape.tail_regions - 1; i >= 0; --i) {
    free_tails_.push_back(shape.shared_rows + i * shape.tail_rows);
  }
}

Status StagingArea::CheckFits(const StagedRows& rows) const {
  if (rows.first < shape_.shared_rows) {
    if (rows.end() <= shape_.shared_rows) return OkStatus();
    return ResourceExhausted("overflow: {} rows, staging holds {}", rows.end(), shape_.shared_rows);
  }
  const int within =
      shape_.tail_rows > 0 ? (rows.first - shape_.shared_rows) % shape_.tail_rows : 0;
  if (rows.end() <= shape_.num_rows() && within + rows.count <= shape_.tail_rows) {
    return OkStatus();
  }
  return ResourceExhausted("overflow: {} rows after {}, a tail holds {}", rows.count, within,
                           shape_.tail_rows);
}

Status StagingArea::Begin(std::span<const StagedRows> rows) {
  if (!is_clear()) return FailedPrecondition("busy: staging still holds {} rows", num_staged_);
  int count = 0;
  for (const StagedRows& range : rows) {
    TALON_RETURN_IF_ERROR(CheckFits(range));
    count += range.count;
  }
  rows_.assign(rows.begin(), rows.end());
  num_staged_ = count;
  return OkStatus();
}

Status StagingArea::Begin(int rows) {
  const StagedRows first{0, rows};
  return Begin(std::span(&first, 1));
}

void StagingArea::Report(std::span<const uint8_t> stored_layers) {
  const int lost = std::exchange(lost_layer_, -1);
  int64_t layers = 0;
  for (int layer = 0; layer < std::min<int>(shape_.layers, stored_layers.size()); ++layer) {
    stored_[layer] = layer == lost ? 0 : stored_layers[layer];
    layers += stored_[layer];
  }
  metrics_->Add(Counter::kNworStagedTokens, num_staged_);
  metrics_->Add(Counter::kNworStageOperations, num_staged_ * layers);
  metrics_->Add(Counter::kKvBytesStaged,
                num_staged_ * layers * static_cast<int64_t>(shape_.row_bytes), "pass");
}

void StagingArea::Clear() {
  rows_.clear();
  num_staged_ = 0;
  std::ranges::fill(stored_, 0);
}

Status StagingArea::CheckStaged(std::span<const int32_t> rows) const {
  for (const int32_t row : rows) {
    const bool begun = std::ranges::any_of(
        rows_, [row](const StagedRows& range) { return range.first <= row && row < range.end(); });
    if (!begun) return FailedPrecondition("incomplete: row {} is not of this pass", row);
  }
  const auto missing = std::ranges::find(stored_, 0);
  if (missing == stored_.end()) return OkStatus();
  return FailedPrecondition("incomplete: layer {} has not stored its rows",
                            missing - stored_.begin());
}

Status StagingArea::OpenTail(Sequence* sequence) {
  if (sequence->tail_first >= 0) return OkStatus();
  if (free_tails_.empty()) {
    return ResourceExhausted("kv: all {} tails are taken (sequence {})", shape_.tail_regions,
                             sequence->id);
  }
  sequence->tail_first = free_tails_.back();
  sequence->tail_len = 0;
  free_tails_.pop_back();
  return OkStatus();
}

void StagingArea::CloseTail(Sequence* sequence) {
  if (sequence->tail_first >= 0) free_tails_.push_back(sequence->tail_first);
  sequence->tail_first = -1;
  sequence->tail_len = 0;
}

Status StagingArea::CheckTails(std::span<const Sequence* const> sequences) const {
  std::set<int32_t> seen(free_tails_.begin(), free_tails_.end());
  for (const Sequence* sequence : sequences) {
    if (sequence->tail_len < 0 || sequence->tail_len > shape_.tail_rows ||
        (sequence->tail_first < 0 && sequence->tail_len > 0)) {
      return Internal("kv: sequence {} has a tail of {} tokens, room for {}", sequence->id,
                      sequence->tail_len, sequence->tail_first < 0 ? 0 : shape_.tail_rows);
    }
    if (sequence->tail_first >= 0 && !seen.insert(sequence->tail_first).second) {
      return Internal("kv: tail at row {} is free or shared (sequence {})", sequence->tail_first,
                      sequence->id);
    }
  }
  if (static_cast<int>(seen.size()) == shape_.tail_regions) return OkStatus();
  return Internal("kv: {} tails free or used, {} exist", seen.size(), shape_.tail_regions);
}

}  // namespace talon
