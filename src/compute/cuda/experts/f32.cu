#include "compute/cuda/experts/products.cuh"

namespace talon::cuda {
namespace {

// float32 experts, for checks: a warp computes whole sums of some rows, lane by lane.
struct F32Format {
  using T = float;

  template <int Pairs, bool Gated, typename Begin>
  static __device__ __forceinline__ void AccumulateItem(const ExpertProduct& args,
                                                        const ProductItem& item, const Begin& begin,
                                                        ProductShared<Pairs>& shared) {
    begin();
    const int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32; row < kItemOutputs; row += kExpertWarps) {
      const int at = min(item.row_begin[row / 16] + row % 16, args.matrix_rows - 1);
      const auto* weights = reinterpret_cast<const float*>(
          static_cast<const uint8_t*>(item.matrix.data) + at * args.row_bytes);
      for (int pair = 0; pair < item.tile.count; ++pair) {
        const float* x = InputOf<Gated, float>(args, item, pair);
        float sum = 0;
        for (int i = lane; i < args.inputs; i += 32) sum = __fmaf_rn(weights[i], x[i], sum);
        for (int offset = 16; offset > 0; offset /= 2) sum += ShuffleXor(sum, offset);
        if (lane < kExpertWarps) shared.partials[lane][row][pair] = lane == 0 ? sum : 0.0f;
      }
    }
  }
};

}  // namespace

void LaunchExpertsF32(const Stream& stream, const ExpertProduct& product, bool gated,
                      int /*tile_pairs*/, int items) {
  if (gated) return LaunchProduct<F32Format, 32, true>(stream, product, items);
  LaunchProduct<F32Format, 32, false>(stream, product, items);
}

}  // namespace talon::cuda
