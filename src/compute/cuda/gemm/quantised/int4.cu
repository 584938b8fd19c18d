#include "compute/cuda/gemm/quantised/gemm.cuh"

namespace talon::cuda {

const CodeKernels& CodeKernelsInt4(const CodeTiles& tiles) {
  if (tiles.sets == 1) return AllCodeKernels<Int4Codes<1, true>>();
  return tiles.zeros ? AllCodeKernels<Int4Codes<4, true>>() : AllCodeKernels<Int4Codes<4, false>>();
}

}  // namespace talon::cuda
