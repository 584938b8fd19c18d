#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace talon {
namespace {

// About 50 microseconds: longer than the gap between two ops of a pass, too short to be noticed.
constexpr int kSpins = 4000;

inline void CpuRelax() {
#if defined(__aarch64__)
  asm volatile("yield");
#elif defined(__x86_64__)
  asm volatile("pause");
#endif
}

}  // namespace

int CoresOfQuota(std::istream& cpu_max) {
  std::string quota;
  double period = 0;
  if (!(cpu_max >> quota >> period) || quota == "max" || period <= 0) return 1 << 20;
  return std::max(1, static_cast<int>(std::ceil(std::atof(quota.c_str()) / period)));
}

// What one thread writes and others wait for has a cache line of its own.
constexpr size_t kLine = 64;

// One loop at a time. `epoch` announces a loop; a thread begins with the task of its own number and
// takes more from `next`; the caller waits until every worker has reported in `finished`, so the
// task reference never outlives the loop.
struct ThreadPool::State {
  alignas(kLine) std::atomic<uint64_t> epoch{0};
  int64_t num_tasks = 0;
  const TaskRef* task = nullptr;
  std::atomic<bool> stop{false};
  alignas(kLine) std::atomic<int64_t> next{0};
  alignas(kLine) std::atomic<int> finished{0};

  alignas(kLine) std::atomic<int> sleepers{0};
  bool spin = true;  // pointless when threads outnumber cores
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> workers;
  std::exception_ptr failure;

  // What a task throws reaches the caller of Run(); tasks that have not begun are left out.
  void TakeTasks(int thread) {
    try {
      int64_t index = thread;
      while (index < num_tasks) {
        (*task)(index, thread);
        index = next.fetch_add(1, std::memory_order_relaxed);
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      failure = std::current_exception();
      next.store(num_tasks, std::memory_order_relaxed);
    }
  }

  // Returns the new epoch, or 0 when the pool stops.
  uint64_t AwaitEpoch(uint64_t seen) {
    for (int i = 0; spin && i < kSpins; ++i) {
      const uint64_t now = epoch.load(std::memory_order_acquire);
      if (now != seen) return stop.load() ? 0 : now;
      CpuRelax();
    }
    std::unique_lock<std::mutex> lock(mutex);
    sleepers.fetch_add(1);
    wake.wait(lock, [&] { return epoch.load() != seen; });
    sleepers.fetch_sub(1);
    return stop.load() ? 0 : epoch.load();
  }

  void Announce() {
    epoch.fetch_add(1);
    if (sleepers.load() == 0) return;
    const std::lock_guard<std::mutex> lock(mutex);
    wake.notify_all();
  }

  void WorkerLoop(int thread) {
    uint64_t seen = 0;
    while ((seen = AwaitEpoch(seen)) != 0) {
      TakeTasks(thread);
      finished.fetch_add(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads > 0 ? num_threads : DefaultThreads()),
      state_(std::make_unique<State>()) {
  state_->spin = num_threads_ <= DefaultThreads();
  for (int thread = 1; thread < num_threads_; ++thread) {
    state_->workers.emplace_back([this, thread] { state_->WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->Announce();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::DefaultThreads() {
  cpu_set_t set;
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  std::ifstream cpu_max("/sys/fs/cgroup/cpu.max");
  return std::max(1, std::min(cores, CoresOfQuota(cpu_max)));
}

void ThreadPool::RunParallel(int64_t num_tasks, TaskRef f) {
  State& state = *state_;
  state.task = &f;
  state.num_tasks = num_tasks;
  state.next.store(num_threads_, std::memory_order_relaxed);
  state.finished.store(0, std::memory_order_relaxed);
  state.Announce();
  state.TakeTasks(0);
  const int others = num_threads_ - 1;
  int spins = 0;
  while (state.finished.load(std::memory_order_acquire) != others) {
    CpuRelax();
    if (!state.spin || ++spins > kSpins) std::this_thread::yield();
  }
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

}  // namespace talon
