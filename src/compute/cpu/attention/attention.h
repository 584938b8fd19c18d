// Attention of a pass over a paged cache: softmax(scale * q k^T) v.
//
// The prefix is read once for all rows of a sequence and all query heads that share a kv head. A
// row's result depends only on its own query and the keys it sees, in order (attention_plan.h).
#ifndef TALON_COMPUTE_CPU_ATTENTION_ATTENTION_H_
#define TALON_COMPUTE_CPU_ATTENTION_ATTENTION_H_

#include <vector>

#include "base/threads.h"
#include "compute/cpu/attention/block.h"

namespace talon {

// Memory for the largest pass so far, kept between passes. One attention call at a time.
class AttentionScratch {
 public:
  struct Thread {
    FloatArena arena;
    AttentionTiles tiles;
    std::vector<AttentionState> states;  // by kv head of an item
    std::vector<QueryBlock> blocks;      // the same
  };

  void Reserve(int num_threads, const AttentionCall& call);
  Thread& thread(int index) { return threads_[index]; }
  AttentionPartials& partials() { return partials_; }

 private:
  std::vector<Thread> threads_;
  AttentionPartials partials_;
};

void RunAttention(ThreadPool& pool, const AttentionCall& call, AttentionScratch* scratch);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_ATTENTION_H_
