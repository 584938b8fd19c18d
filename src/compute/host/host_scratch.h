// Rows that live until the next op of their kind.
#ifndef TALON_COMPUTE_HOST_HOST_SCRATCH_H_
#define TALON_COMPUTE_HOST_HOST_SCRATCH_H_

#include <cstddef>
#include <utility>

#include "base/contain.h"
#include "compute/backend.h"

namespace talon {

// Memory of a backend that grows to the largest request.
class HostScratch {
 public:
  explicit HostScratch(Backend* backend) : backend_(backend) {}

  // Holds until the next call; contents undefined.
  MatrixView Take(int rows, int cols) {
    const size_t bytes = static_cast<size_t>(rows) * cols * sizeof(float);
    if (buffer_.bytes() < bytes) {
      buffer_ = MemoryOrThrow(backend_->Allocate(bytes));
    }
    return {static_cast<float*>(buffer_.data()), rows, cols, cols};
  }

 private:
  Backend* backend_;
  Buffer buffer_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_SCRATCH_H_
