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
  int shared_rows = 0;
  int tail_regions = 0;
  int tail_rows = 0;  // rows of a region
  int num_rows() const { return shared_rows + tail_regions * tail_rows; }
};

class StagingArea {
 public:
  StagingArea(const StagingShape& shape, Metrics* metrics);

  // A pass that stages `rows` begins, then every layer reports the rows it staged, in any order;
  // staging a row twice overwrites it. Commits follow, then Clear ends the step; what was appended
  // to tails stays. Failures: `busy` (not clear), `overflow`.
  Status Begin(std::span<const StagedRows> rows);
  Status Begin(int rows);  // the first `rows`
  void Mark(int layer, std::span<const int32_t> rows);
  void MarkAll();  // every layer staged every row, as a complete pass does
  void Clear();
  bool is_clear() const { return num_staged_ == 0; }
  // Fails with `incomplete` if a row is missing in some layer.
  Status CheckStaged(std::span<const int32_t> rows) const;

  // Gives the sequence a tail region (ResourceExhausted if all are taken), which it keeps until
  // CloseTail.
  Status OpenTail(Sequence* sequence);
  void CloseTail(Sequence* sequence);
  // The sequence's region, counted from 0. REQUIRES: it has one.
  int RegionOf(const Sequence& sequence) const {
    return (sequence.tail_first - shape_.shared_rows) / shape_.tail_rows;
  }
  // Every region is free or belongs to one of these sequences.
  Status CheckTails(std::span<const Sequence* const> sequences) const;

 private:
  Status CheckFits(const StagedRows& rows) const;

  StagingShape shape_;
  Metrics* metrics_;
  std::vector<int32_t> free_tails_;           // first rows of free regions
  std::vector<StagedRows> rows_;              // the pass under way, empty when clear
  int num_staged_ = 0;                        // rows of the pass
  std::vector<std::vector<uint8_t>> staged_;  // [layers][num_rows] 1 = staged
};

}  // namespace talon

#endif  // TALON_KV_STAGING_H_
