#include "compute/cuda/gemm/quantised/gemm.cuh"

namespace talon::cuda {

const CodeKernels& CodeKernelsFp8(const CodeTiles& tiles) {
  return tiles.sets == 0 ? AllCodeKernels<Fp8Codes<0>>() : AllCodeKernels<Fp8Codes<1>>();
}

}  // namespace talon::cuda
