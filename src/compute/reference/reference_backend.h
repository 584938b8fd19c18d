// The slow twin of every op: naive loops, sums in double, results rounded to float32 once. For
// tests only. int8 weights are quantised as the contract says, and so are the activations they
// meet.
#ifndef TALON_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_
#define TALON_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>

#include "compute/backend.h"

namespace talon {

std::unique_ptr<Backend> NewReferenceBackend();

}  // namespace talon

#endif  // TALON_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_
