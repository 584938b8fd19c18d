#include "compute/cpu/peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "compute/cpu/matmul/memory.h"
#include "compute/cpu/peak_kernels.h"

namespace talon {
namespace {

double SecondsOf(auto&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double MeasureReadBandwidth(ThreadPool& pool) {
  // Whole passes over a buffer as large as a model: shorter windows of it may lie in a cache of a
  // few hundred megabytes. The best pass counts, so that a moment's other work on the machine does
  // not.
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int64_t kTask = int64_t{256} << 10;
  constexpr int kPasses = 8;
  Result<Buffer> buffer = AllocateStreamed(kBytes);
  if (!buffer.ok()) return 0;
  auto* bytes = static_cast<uint8_t*>(buffer->data());
  pool.Run(kBytes / kTask, [&](int64_t task, int) { std::memset(bytes + task * kTask, 1, kTask); });
  std::atomic<uint32_t> sink{0};
  double best = 1e30;
  for (int pass = 0; pass < kPasses; ++pass) {
    best = std::min(best, SecondsOf([&] {
                      pool.Run(kBytes / kTask, [&](int64_t task, int) {
                        const auto* words = reinterpret_cast<const uint32_t*>(bytes + task * kTask);
                        sink += SumWords(words, kTask / sizeof(uint32_t));
                      });
                    }));
  }
  return kBytes / best / 1e9;
}

double MeasureMatrixPeak(ThreadPool& pool, MatrixKind kind) {
  // Many short bursts: a core may settle on a poor assignment of instructions to its pipes for as
  // long as a loop runs, so each thread's best burst counts.
  constexpr int64_t kIterations = 5000;
  constexpr int kBursts = 1000;
  std::vector<double> best(pool.num_threads(), 0);  // operations per second, by task
  pool.Run(pool.num_threads(), [&](int64_t task, int) {
    for (int burst = 0; burst < kBursts; ++burst) {
      int64_t operations = 0;
      const double seconds = SecondsOf([&] { operations = BurnMatrix(kind, kIterations); });
      best[task] = std::max(best[task], static_cast<double>(operations) / seconds);
    }
  });
  return std::accumulate(best.begin(), best.end(), 0.0) / 1e9;
}

}  // namespace talon
