// Memory put aside for the moment when there is none: a failed allocation becomes an exception as
// always, but what is destroyed on its way finds memory, or waits for it where others have used the
// reserve up. Destructors that allocate (those of JSON values) would end the process otherwise.
#ifndef TALON_BASE_MEMORY_RESERVE_H_
#define TALON_BASE_MEMORY_RESERVE_H_

#include <cstddef>

namespace talon {

// Sets `bytes` of address space aside, now and again after they were used up; they are not
// resident. Call it often: it does nothing while the reserve is there. Thread-safe.
void KeepMemoryReserve(size_t bytes);

// While one lives, allocations of its thread wait for memory that others give back instead of
// failing at once: for work that must not be left half done. After `most_seconds` they fail.
// Without effect where no reserve is kept.
class WaitForMemory {
 public:
  explicit WaitForMemory(double most_seconds = 30);
  ~WaitForMemory();
  WaitForMemory(const WaitForMemory&) = delete;
  WaitForMemory& operator=(const WaitForMemory&) = delete;

 private:
  double seconds_before_;  // what the one around it had left
};

}  // namespace talon

#endif  // TALON_BASE_MEMORY_RESERVE_H_
