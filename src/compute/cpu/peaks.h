// Measured peaks of this machine: the denominators of "share of peak" figures.
#ifndef TALON_COMPUTE_CPU_PEAKS_H_
#define TALON_COMPUTE_CPU_PEAKS_H_

#include "base/threads.h"

namespace talon {

enum class MatrixKind { kF32, kBF16, kInt8 };

// GB/s (1e9) that all threads of the pool read together in the best of a few passes over a
// gigabyte. 0 if there is no memory for it.
double MeasureReadBandwidth(ThreadPool& pool);

// G(FL)OP/s (a multiply-add counts two) of the best instruction that MatMul uses for `kind`, on
// registers only: the sum over the threads of the pool of each one's best burst.
double MeasureMatrixPeak(ThreadPool& pool, MatrixKind kind);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_PEAKS_H_
