// Experts of 16-bit floats, row-major.
#ifndef TALON_COMPUTE_CUDA_EXPERTS_FLOAT16_CUH_
#define TALON_COMPUTE_CUDA_EXPERTS_FLOAT16_CUH_

#include "compute/cuda/experts/products.cuh"

namespace talon::cuda {

template <typename Element>
struct Float16Format : MmaAccumulate<Float16Format<Element>> {
  using T = Element;
  static constexpr int kScales = 0;
  static constexpr int kAhead = 1;
  static __device__ __forceinline__ int InputOffset(int piece, int t) { return 32 * piece + 8 * t; }

  // What a lane reads of a half's rows. Rows behind the last of the matrix are computed and not
  // stored.
  struct Rows {
    const uint4* rows[2];

    __device__ __forceinline__ Rows(const ExpertProduct& args, const ExpertMatrix& matrix,
                                    int row_begin) {
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = min(row_begin + lane / 4 + 8 * i, args.matrix_rows - 1);
        rows[i] = reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(matrix.data) +
                                                 row * args.row_bytes) +
                  lane % 4;
      }
    }
  };

  struct Chunk {
    uint4 rows[2][4];

    __device__ __forceinline__ void Load(const Rows& from, int chunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int p = 0; p < 4; ++p) rows[i][p] = __ldcs(from.rows[i] + 16 * chunk + 4 * p);
      }
    }
    __device__ __forceinline__ void Expand(int piece, uint32_t (&a)[2][4]) const {
      const uint4 low = rows[0][piece], high = rows[1][piece];
      a[0][0] = low.x, a[0][1] = high.x, a[0][2] = low.y, a[0][3] = high.y;
      a[1][0] = low.z, a[1][1] = high.z, a[1][2] = low.w, a[1][3] = high.w;
    }
  };
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_EXPERTS_FLOAT16_CUH_
