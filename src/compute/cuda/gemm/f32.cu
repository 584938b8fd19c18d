#include "base/math.h"
#include "compute/cuda/gemm/f32.h"

namespace talon::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kWarpOutputs = 4;
constexpr int kBlockRows = 8;

__device__ __forceinline__ float Dot(float4 a, float4 b, float sum) {
  sum = fmaf(a.x, b.x, sum);
  sum = fmaf(a.y, b.y, sum);
  sum = fmaf(a.z, b.z, sum);
  return fmaf(a.w, b.w, sum);
}

__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, offset);
  }
  return value;
}

// Rows and outputs past the end load the last one and are not stored.
__global__ void __launch_bounds__(32 * kWarps) F32GemmKernel(const F32Args args) {
  PdlTrigger();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_output =
      (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32) * kWarpOutputs;
  const int first_row = static_cast<int>(blockIdx.y) * kBlockRows;
  PdlWait();
  float acc[kWarpOutputs][kBlockRows] = {};
  for (int col = lane * 4; col < args.cols; col += 128) {
    float4 w[kWarpOutputs];
#pragma unroll
    for (int o = 0; o < kWarpOutputs; ++o) {
      const int64_t output = min(first_output + o, args.out.cols - 1);
      w[o] = *reinterpret_cast<const float4*>(args.weights + output * args.cols + col);
    }
#pragma unroll
    for (int r = 0; r < kBlockRows; ++r) {
      const int64_t row = min(first_row + r, args.out.rows - 1);
      const float4 x = *reinterpret_cast<const float4*>(args.x + row * args.x_stride + col);
#pragma unroll
      for (int o = 0; o < kWarpOutputs; ++o) acc[o][r] = Dot(w[o], x, acc[o][r]);
    }
  }
#pragma unroll
  for (int o = 0; o < kWarpOutputs; ++o) {
#pragma unroll
    for (int r = 0; r < kBlockRows; ++r) {
      const float sum = WarpSum(acc[o][r]);
      const int output = first_output + o;
      const int row = first_row + r;
      if (lane != r || output >= args.out.cols || row >= args.out.rows) continue;
      float* out = args.out.data + row * args.out.stride + output;
      const float value = sum + (args.bias != nullptr ? args.bias[output] : 0.0f);
      *out = args.accumulate ? value + *out : value;
    }
  }
}

}  // namespace

void LaunchF32(const Stream& stream, const F32Args& args) {
  constexpr int kBlockOutputs = kWarps * kWarpOutputs;
  const dim3 grid(CeilDiv(args.out.cols, kBlockOutputs), CeilDiv(args.out.rows, kBlockRows));
  Launch(stream, F32GemmKernel, grid, 32 * kWarps, 0, args);
}

}  // namespace talon::cuda
