// Memory for large arrays that are read from end to end.
#ifndef TALON_COMPUTE_CPU_MATMUL_MEMORY_H_
#define TALON_COMPUTE_CPU_MATMUL_MEMORY_H_

#include <cstddef>

#include "base/status.h"
#include "compute/matrix.h"

namespace talon {

// Zero-filled, 64-byte aligned. Large ones are mapped on their own, untouched (so the thread that
// fills a part places it) and in huge pages where the system allows. ResourceExhausted if there is
// no such memory; with `touch` also if the system promised more than it has.
Result<Buffer> AllocateStreamed(size_t bytes, bool touch = false);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_MEMORY_H_
