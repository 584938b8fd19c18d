// The inner loops of key summaries and block scores. Vectorised, no threads; every function works
// in a fixed order.
#ifndef TALON_COMPUTE_CPU_ATTENTION_BLOCK_KERNELS_H_
#define TALON_COMPUTE_CPU_ATTENTION_BLOCK_KERNELS_H_

#include "compute/pass_plan.h"

namespace talon {

// Element-wise largest and smallest of `count` keys [count, head_dim], NaN where some key has NaN.
// Returns the mean of their L2 norms.
float SummariseKeys(const float* keys, int count, int head_dim, float* largest, float* smallest);

// Scores of one query row: a[i], or the larger of a[i] and b[i] if b is not null; -inf where one of
// them is NaN. total[i] += score, or the larger of both.
struct ScoreRow {
  const float* a = nullptr;
  const float* b = nullptr;
  int count = 0;
  float* total = nullptr;
};
void AddScoreRow(const ScoreRow& row, ScoreReduce reduce);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_BLOCK_KERNELS_H_
