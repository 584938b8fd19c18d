// A pool of worker threads for short data-parallel loops.
//
// The caller is one of the `num_threads` threads, so a pool of 1 starts none. Workers spin briefly
// after a loop, because the next one usually follows within microseconds, then sleep. Run() may be
// called from one thread at a time and must not be nested.
#ifndef TALON_BASE_THREADS_H_
#define TALON_BASE_THREADS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>

namespace talon {

// A non-owning reference to a callable, so that Run() allocates nothing.
class TaskRef {
 public:
  template <typename F>
  TaskRef(F& f)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, int64_t task, int thread) {
          (*static_cast<F*>(object))(task, thread);
        }) {}
  void operator()(int64_t task, int thread) const { call_(object_, task, thread); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int);
};

// An order of tasks in which each thread reads one long contiguous part, which memory prefetching
// favours: threads begin far apart, and a thread's next task continues its last. A permutation of
// [0, num_tasks).
inline int64_t TaskInStretches(int64_t task, int64_t num_tasks, int num_threads) {
  const int64_t each = num_tasks / num_threads;
  const int64_t longer = num_tasks % num_threads;  // stretches with one task more
  const int64_t turn = task / num_threads;
  const int64_t stretch = task % num_threads;
  return stretch * each + std::min(stretch, longer) + turn;
}

// Cores that a cgroup's `cpu.max` grants, "QUOTA PERIOD" in microseconds, a part of one counted as
// one. Where there is none, or QUOTA is "max": more than any machine has.
int CoresOfQuota(std::istream& cpu_max);

class ThreadPool {
 public:
  // 0 = DefaultThreads().
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Cores this process may use (affinity and cgroup quota respected), at least 1.
  static int DefaultThreads();

  int num_threads() const { return num_threads_; }

  // Calls f(task, thread) once for every task in [0, num_tasks), thread in [0, num_threads).
  // Returns when all calls have returned. Tasks are handed out in ascending order, the first
  // num_threads to the thread of the same number.
  template <typename F>
  void Run(int64_t num_tasks, F&& f) {
    if (num_tasks <= 0) return;
    if (num_threads_ == 1 || num_tasks == 1) {
      for (int64_t task = 0; task < num_tasks; ++task) f(task, 0);
      return;
    }
    RunParallel(num_tasks, TaskRef(f));
  }

 private:
  struct State;
  void RunParallel(int64_t num_tasks, TaskRef f);

  int num_threads_;
  std::unique_ptr<State> state_;
};

}  // namespace talon

#endif  // TALON_BASE_THREADS_H_
