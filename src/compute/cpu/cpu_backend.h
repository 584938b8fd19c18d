// The CPU backend: Highway and per-architecture kernels on a pool of threads. Ops have run when
// they return. Rows have the same bits whatever the batch and the number of threads.
#ifndef TALON_COMPUTE_CPU_CPU_BACKEND_H_
#define TALON_COMPUTE_CPU_CPU_BACKEND_H_

#include <memory>

#include "compute/backend.h"

namespace talon {

// Starts num_threads - 1 threads; 0 = as many as the process may use. With `touch_memory` every
// page is touched when it is allocated, so that a server finds out at its start whether there is
// enough memory. `amx`: that of the first backend holds for the process; false is for comparisons.
std::unique_ptr<Backend> NewCpuBackend(int num_threads = 0, bool touch_memory = false,
                                       bool amx = true);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_CPU_BACKEND_H_
