// Checks of the parts given to Backend::PackWeight, the same for every device.
#ifndef TALON_COMPUTE_WEIGHT_PARTS_H_
#define TALON_COMPUTE_WEIGHT_PARTS_H_

#include <span>

#include "base/status.h"
#include "compute/dtype.h"
#include "compute/matrix.h"

namespace talon {

// There are parts, of float types, sane shapes and equal columns; or one of MXFP4.
Status CheckWeightParts(std::span<const HostMatrix> parts);

// The type that a weight's elements are kept in. Parts of several types, kept as they are, are kept
// exactly.
DType StoredWeightType(std::span<const HostMatrix> parts, WeightFormat format);

// Whether rows are rounded to FP8 before they are multiplied by these parts: where that is asked
// for, and the weights are FP8 whose scales belong to outputs or to whole groups of inputs.
bool HasFp8Activations(std::span<const HostMatrix> parts, WeightFormat format,
                       ActivationFormat activations);

}  // namespace talon

#endif  // TALON_COMPUTE_WEIGHT_PARTS_H_
