// Key summaries and block scores in double precision, as their definitions read.
#ifndef TALON_COMPUTE_REFERENCE_REFERENCE_SCORES_H_
#define TALON_COMPUTE_REFERENCE_REFERENCE_SCORES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/kv_view.h"
#include "compute/matrix.h"
#include "compute/pass_plan.h"

namespace talon {

void ReferenceSummary(const KvShape& shape, const KvLayer& arrays, int32_t block, int kv_head);

// For scores by attention: the factor of q k^T, and the first key that each row of the pass sees.
struct ReferenceSight {
  double scale = 1;
  std::vector<int> first_key;
};

// The scores of blocks of the cache at one kv head.
std::vector<double> ReferenceScores(const ScoreRequest& request, const MatrixView& q,
                                    const KvShape& shape, const KvLayer& arrays,
                                    std::span<const int32_t> blocks, int kv_head,
                                    const ReferenceSight& sight = {});

}  // namespace talon

#endif  // TALON_COMPUTE_REFERENCE_REFERENCE_SCORES_H_
