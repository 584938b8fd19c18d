// Memory put aside for the moment when there is none: a failed allocation becomes an exception as
// always, but what is destroyed on its way finds memory. Destructors that allocate (those of JSON
// values) would end the process otherwise.
#ifndef TALON_BASE_MEMORY_RESERVE_H_
#define TALON_BASE_MEMORY_RESERVE_H_

#include <cstddef>

namespace talon {

// Sets `bytes` of address space aside, now and again after they were used up; they are not
// resident. Call it often: it does nothing while the reserve is there. Thread-safe.
void KeepMemoryReserve(size_t bytes);

}  // namespace talon

#endif  // TALON_BASE_MEMORY_RESERVE_H_
