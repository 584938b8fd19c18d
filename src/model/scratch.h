// A matrix with its memory: the workspace of a model's pass.
#ifndef TALON_MODEL_SCRATCH_H_
#define TALON_MODEL_SCRATCH_H_

#include "base/math.h"
#include "base/status.h"
#include "compute/backend.h"

namespace talon {

struct Scratch {
  Buffer buffer;
  MatrixView all;  // every row it has room for
  MatrixView Rows(int rows) const { return all.Rows(0, rows); }
};

inline Result<Scratch> NewScratch(Backend* backend, int rows, int cols) {
  constexpr int kAlign = 16;  // floats: rows start on cache lines
  const int64_t stride = RoundUp(static_cast<int64_t>(cols), kAlign);
  Scratch scratch;
  TALON_ASSIGN_OR_RETURN(scratch.buffer,
                         backend->Allocate(static_cast<size_t>(rows * stride) * sizeof(float)));
  scratch.all = {static_cast<float*>(scratch.buffer.data()), rows, cols, stride};
  return scratch;
}

}  // namespace talon

#endif  // TALON_MODEL_SCRATCH_H_
