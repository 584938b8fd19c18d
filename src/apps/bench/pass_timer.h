// Times whole passes of a model over random keys and values, and copies of partial views.
#ifndef TALON_APPS_BENCH_PASS_TIMER_H_
#define TALON_APPS_BENCH_PASS_TIMER_H_

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "base/status.h"
#include "kv/kv_cache.h"
#include "observe/metrics.h"
#include "setup/loader.h"
#include "spec/plan.h"

namespace talon {

// One pass: every sequence brings a tree over its whole prefix, or over `budget` tokens of it.
struct PassCase {
  int sequences = 1;
  int context = 0;
  int nodes = 1;
  int budget = 0;
  bool copied = false;  // the budget's blocks were copied to the device before (KvCache::views)
};

struct TimerOptions {
  int tokens = 0;  // all sequences together
  int rows = 0;
  int sequences = 1;
  bool offload = false;
  int view_blocks = 0;
};

class PassTimer {
 public:
  static Result<std::unique_ptr<PassTimer>> Create(LoadedModel* model, const TimerOptions& options);
  // Seconds of a pass and the argmax of its rows, the median of `repeats`.
  Result<double> Time(const PassCase& pass, int repeats);
  // Seconds to copy a sequence's partial view to the device.
  Result<double> TimeCopy(const PassCase& pass, int repeats);
  double KvBytes(const PassCase& pass) const {
    const int tokens = pass.budget > 0 ? pass.budget : pass.context;
    return static_cast<double>(kv_->shape().BytesPerToken()) * tokens * pass.sequences;
  }

 private:
  explicit PassTimer(LoadedModel* model) : model_(model) {}
  Status FillBlocks();
  // Block lists of a partial view: the wanted number of blocks, others in every list.
  std::vector<int32_t> RandomLists(const Sequence& sequence, int blocks);
  Result<Sequence*> NewSequence(const PassCase& pass, int index);
  Status AddSequence(const PassCase& pass, int index);

  LoadedModel* model_;
  Metrics metrics_;
  std::unique_ptr<KvCache> kv_;
  std::mt19937 random_{1};
  PassBuilder builder_;
  std::vector<Sequence> sequences_;
};

}  // namespace talon

#endif  // TALON_APPS_BENCH_PASS_TIMER_H_
