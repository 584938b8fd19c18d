// The kernels' expansion of quantised K and V, for a test of all codes and scales.
#ifndef TALON_COMPUTE_CUDA_TESTING_EXPAND_CODES_H_
#define TALON_COMPUTE_CUDA_TESTING_EXPAND_CODES_H_

#include <cstdint>
#include <vector>

#include "compute/dtype.h"

namespace talon::cuda {

// The bits of the bf16 numbers that codes 0..255 stand for with this scale.
std::vector<uint16_t> ExpandAllCodes(DType dtype, uint8_t scale);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TESTING_EXPAND_CODES_H_
