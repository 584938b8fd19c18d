#include "kv/staging.h"

#include <algorithm>
#include <set>

namespace talon {

StagingArea::StagingArea(const StagingShape& shape, Metrics* metrics)
    : shape_(shape), metrics_(metrics) {
  for (int i = shape.tail_regions - 1; i >= 0; --i) {
    free_tails_.push_back(shape.shared_rows + i * shape.tail_rows);
  }
  staged_.assign(shape.layers, std::vector<uint8_t>(shape.num_rows(), 0));
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
  metrics_->Add(Counter::kNworStagedTokens, count);
  return OkStatus();
}

Status StagingArea::Begin(int rows) {
  const StagedRows first{0, rows};
  return Begin(std::span(&first, 1));
}

void StagingArea::Mark(int layer, std::span<const int32_t> rows) {
  for (const int32_t row : rows) staged_[layer][row] = 1;
  metrics_->Add(Counter::kNworStageOperations, static_cast<int64_t>(rows.size()));
}

void StagingArea::MarkAll() {
  for (auto& layer : staged_) {
    for (const StagedRows& rows : rows_) std::fill_n(layer.begin() + rows.first, rows.count, 1);
  }
  metrics_->Add(Counter::kNworStageOperations, static_cast<int64_t>(num_staged_) * shape_.layers);
}

void StagingArea::Clear() {
  for (auto& layer : staged_) {
    for (const StagedRows& rows : rows_) std::fill_n(layer.begin() + rows.first, rows.count, 0);
  }
  rows_.clear();
  num_staged_ = 0;
}

Status StagingArea::CheckStaged(std::span<const int32_t> rows) const {
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (const int32_t row : rows) {
      if (row < 0 || row >= shape_.num_rows() || staged_[layer][row] == 0) {
        return FailedPrecondition("incomplete: row {} not staged in layer {}", row, layer);
      }
    }
  }
  return OkStatus();
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
