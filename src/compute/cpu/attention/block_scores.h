// Key summaries of full blocks (KvOps::SummariseBlocks), and scores of blocks by them
// (KvOps::ScoreBlocks).
#ifndef TALON_COMPUTE_CPU_ATTENTION_BLOCK_SCORES_H_
#define TALON_COMPUTE_CPU_ATTENTION_BLOCK_SCORES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"
#include "compute/cpu/attention/block.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"
#include "compute/pass_plan.h"

namespace talon {

void SummariseBlocks(ThreadPool& pool, const KvView& kv, std::span<const int32_t> blocks);

struct ScoreCall {
  const PassPlan* pass = nullptr;
  MatrixView q;  // [rows, heads * head_dim]
  KvShape shape;
  int layer_index = 0;
  KvLayer layer;
  MatrixView out;  // [kv_heads, scored blocks]

  int group() const { return q.cols / shape.head_dim / shape.kv_heads; }
};

// Memory kept between calls. One call at a time.
class ScoreScratch {
 public:
  void Reserve(int num_threads, const ScoreCall& call);
  FloatArena& thread(int index) { return threads_[index]; }

 private:
  std::vector<FloatArena> threads_;
};

// A block's score has the same bits whatever the number of threads and the other requests.
void ScoreBlocks(ThreadPool& pool, const ScoreCall& call, ScoreScratch* scratch);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_BLOCK_SCORES_H_
