#include "compute/cuda/experts/float16.cuh"

namespace talon::cuda {

void LaunchExpertsBF16(const Stream& stream, const ExpertProduct& product, bool gated,
                       int tile_pairs, int items) {
  LaunchProducts<Float16Format<__nv_bfloat16>>(stream, product, gated, tile_pairs, items);
}

}  // namespace talon::cuda
