#include "compute/cuda/experts/products.cuh"
#include "compute/cuda/gemm/quantised/codes.cuh"

namespace talon::cuda {
namespace {

__device__ __forceinline__ uint32_t PairOf(uint32_t word, int first) {
  return Int8Codes::Pair(__byte_perm(word, 0, first == 0 ? 0x4140 : 0x4342));
}

// Row-major, with a scale for each row and chunk (CudaWeight).
struct Int8Format : MmaAccumulate<Int8Format> {
  using T = __nv_bfloat16;
  static constexpr int kScales = 1;  // for all pieces of a chunk
  static constexpr int kAhead = 2;
  static __device__ __forceinline__ int InputOffset(int piece, int t) {
    return 64 * (piece / 2) + 16 * t + 8 * (piece % 2);
  }

  // What a lane reads of a half's rows. Rows behind the last of the matrix are computed and not
  // stored.
  struct Rows {
    const uint4* codes[2];
    const float* scales[2];
    int64_t scale_stride;

    __device__ __forceinline__ Rows(const ExpertProduct& args, const ExpertMatrix& matrix,
                                    int row_begin)
        : scale_stride(args.scale_stride) {
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = min(row_begin + lane / 4 + 8 * i, args.matrix_rows - 1);
        codes[i] = reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(matrix.data) +
                                                  row * args.row_bytes) +
                   lane % 4;
        scales[i] = static_cast<const float*>(matrix.scales) + row;
      }
    }
  };

  struct Chunk {
    uint4 rows[2][2];
    float scales[2];

    __device__ __forceinline__ void Load(const Rows& from, int chunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        rows[i][0] = __ldcs(from.codes[i] + 8 * chunk);
        rows[i][1] = __ldcs(from.codes[i] + 8 * chunk + 4);
        scales[i] = __ldg(from.scales[i] + chunk * from.scale_stride);
      }
    }
    __device__ __forceinline__ void Expand(int piece, uint32_t (&a)[2][4]) const {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 all = rows[i][piece / 2];
        const uint32_t first = piece % 2 == 0 ? all.x : all.z;
        const uint32_t second = piece % 2 == 0 ? all.y : all.w;
        a[0][i] = PairOf(first, 0), a[0][2 + i] = PairOf(first, 2);
        a[1][i] = PairOf(second, 0), a[1][2 + i] = PairOf(second, 2);
      }
    }
    __device__ __forceinline__ float Scale(int, int row) const { return scales[row]; }
  };
};

}  // namespace

void LaunchExpertsInt8(const Stream& stream, const ExpertProduct& product, bool gated,
                       int tile_pairs, int items) {
  LaunchProducts<Int8Format>(stream, product, gated, tile_pairs, items);
}

}  // namespace talon::cuda
