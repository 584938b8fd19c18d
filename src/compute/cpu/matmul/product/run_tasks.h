// The tasks of a product on the threads of a pool.
#ifndef TALON_COMPUTE_CPU_MATMUL_PRODUCT_RUN_TASKS_H_
#define TALON_COMPUTE_CPU_MATMUL_PRODUCT_RUN_TASKS_H_

#include <cstdint>

#include "base/threads.h"

namespace talon {

// Calls f(task, thread) for each task, on this thread alone if the work, in multiplications, is not
// worth waking another for.
template <typename F>
void RunTasks(ThreadPool& pool, int64_t tasks, int64_t work, const F& f) {
  constexpr int64_t kInlineWork = 1 << 16;
  if (work > kInlineWork) {
    pool.Run(tasks, f);
  } else {
    for (int64_t task = 0; task < tasks; ++task) f(task, 0);
  }
}

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_PRODUCT_RUN_TASKS_H_
