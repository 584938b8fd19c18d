// Which staging rows hold K/V: those of the pass under way, and the tails of sequences.
//
// Rows 0 to shared_rows - 1 are shared by passes. Behind them are regions for tails: a sequence
// that is verified partially has one, which holds its provisional tokens and, behind them, the tree
// of a partial pass. Books only: the K/V itself is written by the backend.
#ifndef TALON_KV_STAGING_H_
#define TALON_KV_STAGING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/sequence.h"
#include "observe/metrics.h"

namespace talon {

// A run of staging rows.
struct StagedRows {
  int32_t first = 0;
  int32_t count = 0;
  int32_t end() const { return first + count; }
};

struct StagingShape {
  int layers = 0;
  size_t row_bytes = 0;  // K and V of a row in one layer
  int shared_rows = 0;
  int tail_regions = 0;
  int tail_rows = 0;  // rows of a region
  int num_rows() const { return shared_rows + tail_regions * tail_rows; }
};

class StagingArea {
 public:
  StagingArea(const StagingShape& shape, Metrics* metrics);

  // A pass that stages `rows` begins. When it has run, Report says which layers have stored them
  // (ForwardOutput::stored_layers). Commits follow, then Clear ends the step; what was appended to
  // tails stays. Failures: `busy` (not clear), `overflow`.
  Status Begin(std::span<const StagedRows> rows);
  Status Begin(int rows);  // the first `rows`
  void Report(std::span<const uint8_t> stored_layers);
  void Clear();
  int num_staged() const { return num_staged_; }  // rows of the pass
  bool is_clear() const { return num_staged_ == 0; }
  // Fails with `incomplete` if a row is not of this pass or some layer has not reported.
  Status CheckStaged(std::span<const int32_t> rows) const;

  // Gives the sequence a tail region (ResourceExhausted if all are taken), which it keeps until
  // CloseTail.
  Status OpenTail(Sequence* sequence);
  // Empties the tail; the sequence keeps its region.
  static void DropTail(Sequence* sequence) { sequence->tail_len = 0; }
  void CloseTail(Sequence* sequence);
  // The sequence's region, counted from 0. REQUIRES: it has one.
  int RegionOf(const Sequence& sequence) const {
    return (sequence.tail_first - shape_.shared_rows) / shape_.tail_rows;
  }
  // Every region is free or belongs to one of these sequences.
  Status CheckTails(std::span<const Sequence* const> sequences) const;

  // Tests: the next report lacks this layer (-1 = none).
  void InjectLostReport(int layer) { lost_layer_ = layer; }

 private:
  Status CheckFits(const StagedRows& rows) const;

  StagingShape shape_;
  Metrics* metrics_;
  std::vector<int32_t> free_tails_;  // first rows of free regions
  std::vector<StagedRows> rows_;     // the pass under way, empty when clear
  int num_staged_ = 0;               // rows of the pass
  std::vector<uint8_t> stored_;      // [layers] 1: has stored the rows of the pass
  int lost_layer_ = -1;
};

}  // namespace talon

#endif  // TALON_KV_STAGING_H_
