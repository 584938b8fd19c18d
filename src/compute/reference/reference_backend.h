// The slow twin of every op: naive loops, sums in double, results rounded to float32 once. For
// tests, and under another name where there is no faster backend. int8 weights are quantised as the
// contract says, and so are the activations they meet.
#ifndef TALON_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_
#define TALON_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>
#include <string>

#include "compute/backend.h"

namespace talon {

std::unique_ptr<Backend> NewReferenceBackend(
    std::string name = "reference",
    std::string description = "reference, double precision, 1 thread");

}  // namespace talon

#endif  // TALON_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_
