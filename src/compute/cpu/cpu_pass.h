// A pass of the CPU backend, and how its ops go over rows.
#ifndef TALON_COMPUTE_CPU_CPU_PASS_H_
#define TALON_COMPUTE_CPU_CPU_PASS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/threads.h"
#include "compute/cpu/attention/plan.h"
#include "compute/host/host_pass.h"
#include "compute/matrix.h"

namespace talon {

struct CpuPass : HostPass {
  std::vector<int32_t> places;  // [rows] PassPlan::PlaceOfRow
  AttentionPlan attention;
  // The plan of layers that see a window, made when the first of them runs.
  mutable AttentionPlan windowed;
  mutable int window = 0;  // window that it was made for; 0: none yet

  const AttentionPlan& PlanFor(int wanted, int num_threads) const {
    if (wanted == 0) return attention;
    if (window != wanted) windowed.Build(plan, shape, num_threads, wanted);
    window = wanted;
    return windowed;
  }
};

inline const CpuPass& AsCpuPass(const Pass& pass) { return static_cast<const CpuPass&>(pass); }

inline float* RowOf(const MatrixView& x, int64_t row) { return x.data + row * x.stride; }

// Calls f(row) for every row, on several threads if the estimated work is worth waking them.
template <typename F>
void ForRows(ThreadPool& pool, int64_t rows, double nanoseconds_per_row, F&& f) {
  constexpr int64_t kMinParallelNanoseconds = 10000;
  if (nanoseconds_per_row * static_cast<double>(rows) < kMinParallelNanoseconds) {
    for (int64_t row = 0; row < rows; ++row) f(row);
    return;
  }
  const int64_t tasks = std::min<int64_t>(rows, 4 * pool.num_threads());
  pool.Run(tasks, [&](int64_t task, int /*thread*/) {
    for (int64_t row = task * rows / tasks; row < (task + 1) * rows / tasks; ++row) f(row);
  });
}

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_CPU_PASS_H_
