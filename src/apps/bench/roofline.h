// What passes of the target must at least cost on this machine: bytes over bandwidth, operations
// over the matrix peak. Pure arithmetic; the peaks are measured by compute/cpu/peaks.h.
#ifndef TALON_APPS_BENCH_ROOFLINE_H_
#define TALON_APPS_BENCH_ROOFLINE_H_

#include <cstdint>

#include "model/config.h"

namespace talon {

// Multiply-adds, times two, of one row.
double LayerFlops(const ModelConfig& model);                   // all layers' matrices
double HeadFlops(const ModelConfig& model);                    // the output head
double AttentionFlops(const ModelConfig& model, double keys);  // over this many keys

struct Work {
  double weight_bytes = 0;
  double kv_bytes = 0;
  double flops = 0;

  double bytes() const { return weight_bytes + kv_bytes; }
};

// Passes of the target, added up.
struct PassSums {
  int64_t passes = 0;
  int64_t rows = 0;
  int64_t prefix_tokens = 0;      // read, over all passes
  double weight_bytes = 0;        // one pass reads
  double kv_bytes_per_token = 0;  // read for the prefix, key summaries included where they are read
};

// Every row has logits and sees the prefix that its pass read on average; a tree's own rows, few
// beside a long prefix, are left out.
Work WorkOf(const ModelConfig& model, const PassSums& sums);

struct Peaks {
  double bytes_per_second = 0;
  double flops_per_second = 0;
};

struct Bound {
  double memory_seconds = 0;
  double compute_seconds = 0;

  bool by_memory() const { return memory_seconds >= compute_seconds; }
  double seconds() const { return by_memory() ? memory_seconds : compute_seconds; }
};

// REQUIRES: positive peaks
Bound BoundOf(const Work& work, const Peaks& peaks);

}  // namespace talon

#endif  // TALON_APPS_BENCH_ROOFLINE_H_
