// The loops that peaks.cc times. A build without Highway has portable ones.
#ifndef TALON_COMPUTE_CPU_PEAK_KERNELS_H_
#define TALON_COMPUTE_CPU_PEAK_KERNELS_H_

#include <cstdint>

#include "compute/cpu/peaks.h"

namespace talon {

// Reads all words. `count` is a multiple of 1024.
uint32_t SumWords(const uint32_t* from, int64_t count);

// Runs the instruction that MatMul uses for `kind` on registers, `iterations` times, and returns
// how many multiplications and additions that was.
int64_t BurnMatrix(MatrixKind kind, int64_t iterations);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_PEAK_KERNELS_H_
