#include "compute/cuda/gemm/quantised/gemm.cuh"

namespace talon::cuda {

const CodeKernels& CodeKernelsInt8() { return AllCodeKernels<Int8Codes>(); }

}  // namespace talon::cuda
