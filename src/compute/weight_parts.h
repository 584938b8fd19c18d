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

}  // namespace talon

#endif  // TALON_COMPUTE_WEIGHT_PARTS_H_
