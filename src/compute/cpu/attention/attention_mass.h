// Attention mass of blocks (BlockScorer::kAttention): the share of a query's softmax over the keys
// of all scored blocks that falls on a block.
#ifndef TALON_COMPUTE_CPU_ATTENTION_ATTENTION_MASS_H_
#define TALON_COMPUTE_CPU_ATTENTION_ATTENTION_MASS_H_

#include <cstddef>

#include "base/threads.h"
#include "compute/cpu/attention/block_scores.h"

namespace talon {

// Writes the scores of one request. REQUIRES: its scorer is kAttention, `scratch` is reserved.
void ScoreByAttention(ThreadPool& pool, const ScoreCall& call, const ScoreRequest& request,
                      ScoreScratch* scratch);

// Floats that a thread needs for it.
size_t AttentionMassFloats(int dim);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_ATTENTION_MASS_H_
