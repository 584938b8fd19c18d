#include "base/math.h"
#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/device/fp8_rows.cuh"
#include "compute/cuda/elementwise.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreads = 512;
constexpr int kWarps = kNormThreads / 32;

template <typename T>
__global__ void EmbedKernel(const int32_t* tokens, const T* table, int cols, float* out,
                            int64_t stride) {
  PdlTrigger();
  PdlWait();
  const int row = blockIdx.y;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < cols) out[row * stride + i] = ToFloat(table[int64_t{tokens[row]} * cols + i]);
}

// Sum over a block, returned to every thread; the order depends on the block size alone.
__device__ float BlockSum(float value) {
  __shared__ float partial[kWarps];
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += partial[i];
  return sum;
}

template <typename T>
inline constexpr bool kIsFp8 = std::is_same_v<T, __nv_fp8_e4m3>;

// Columns [col, col + 4) of row `row`; FP8: a warp's are those of a group.
template <typename T>
__device__ __forceinline__ void Store4(const RowsOut& out, int64_t row, int col, float4 x) {
  T* to = static_cast<T*>(out.data) + row * out.stride;
  if constexpr (kIsFp8<T>) {
    const int group = col / kFp8Group;
    StoreFp8Group(x, reinterpret_cast<uint8_t*>(to) + group * kFp8Group,
                  out.scales + group * out.scale_stride + row);
  } else if constexpr (sizeof(T) == 4) {
    *reinterpret_cast<float4*>(to + col) = x;
  } else {
    T values[4] = {FromFloat<T>(x.x), FromFloat<T>(x.y), FromFloat<T>(x.z), FromFloat<T>(x.w)};
    *reinterpret_cast<uint2*>(to + col) = *reinterpret_cast<const uint2*>(values);
  }
}

// One block per row, of aligned float4 that fit the threads' registers; FP8: of whole groups.
template <typename T>
__global__ void __launch_bounds__(kNormThreads)
    FastRmsNormKernel(const float* x, int64_t x_stride, const float* weight, float epsilon,
                      const __grid_constant__ RowsOut out) {
  constexpr int kVectors = 4;
  PdlTrigger();
  const int64_t row = blockIdx.x;
  float4 gain[kVectors];
  float4 value[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = 4 * (v * kNormThreads + threadIdx.x);
    if (i < out.cols) gain[v] = *reinterpret_cast<const float4*>(weight + i);
  }
  PdlWait();
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = 4 * (v * kNormThreads + threadIdx.x);
    if (i >= out.cols) break;
    value[v] = *reinterpret_cast<const float4*>(x + row * x_stride + i);
    squares += value[v].x * value[v].x + value[v].y * value[v].y + value[v].z * value[v].z +
               value[v].w * value[v].w;
  }
  const float factor = rsqrtf(BlockSum(squares) / out.cols + epsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = 4 * (v * kNormThreads + threadIdx.x);
    if (i >= out.padded_cols) break;
    float4 normed = {};
    if (i < out.cols) {
      normed = {value[v].x * factor * gain[v].x, value[v].y * factor * gain[v].y,
                value[v].z * factor * gain[v].z, value[v].w * factor * gain[v].w};
    }
    Store4<T>(out, row, i, normed);
  }
}

template <typename T>
__global__ void __launch_bounds__(kNormThreads)
    RmsNormKernel(const float* x, int64_t x_stride, const float* weight, float epsilon,
                  const __grid_constant__ RowsOut out) {
  PdlTrigger();
  const float* row = x + blockIdx.x * x_stride;
  PdlWait();
  float squares = 0;
  for (int i = threadIdx.x; i < out.cols; i += kNormThreads) squares += row[i] * row[i];
  const float factor = rsqrtf(BlockSum(squares) / out.cols + epsilon);
  T* out_row = static_cast<T*>(out.data) + blockIdx.x * out.stride;
  for (int i = threadIdx.x; i < out.padded_cols; i += kNormThreads) {
    out_row[i] = FromFloat<T>(i < out.cols ? row[i] * factor * weight[i] : 0.0f);
  }
}

// bf16 rows, eight columns to a thread, two groups to a warp.
__global__ void RoundToFp8Kernel(const __grid_constant__ RowsOut x,
                                 const __grid_constant__ RowsOut out) {
  PdlTrigger();
  PdlWait();
  const int col = 8 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (col >= out.padded_cols) return;
  const int64_t row = blockIdx.y;
  const auto* from = static_cast<const __nv_bfloat16*>(x.data) + row * x.stride + col;
  const uint4 pairs = *reinterpret_cast<const uint4*>(from);
  StoreFp8Group(pairs, static_cast<uint8_t*>(out.data) + row * out.stride + col,
                out.scales + col / kFp8Group * out.scale_stride + row);
}

// For 16 bits as StoreSwiGlu (gemm/wgmma_store.cuh) has it: a rank's part of gate and up may not
// fit the epilogue where the whole does, and must have the same bits.
template <typename T>
__device__ __forceinline__ float Silu(float x) {
  if constexpr (sizeof(T) == 2) return __fdividef(x, 1.0f + __expf(-x));
  return x / (1.0f + expf(-x));
}

template <typename T>
__global__ void SwiGluKernel(const float* gate_up, int64_t x_stride, int cols, int padded_cols,
                             T* out, int64_t out_stride) {
  PdlTrigger();
  PdlWait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* gate = gate_up + blockIdx.y * x_stride;
  if (i >= padded_cols) return;
  const float value = i < cols ? Silu<T>(gate[i]) * gate[cols + i] : 0.0f;
  out[blockIdx.y * out_stride + i] = FromFloat<T>(value);
}

__global__ void ClampedGateKernel(const __grid_constant__ MatrixView x, float limit,
                                  const __grid_constant__ MatrixView out) {
  PdlTrigger();
  PdlWait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= out.cols) return;
  const float* pair = x.data + blockIdx.y * x.stride + 2 * i;
  const float gate = fminf(pair[0], limit);
  const float up = fminf(fmaxf(pair[1], -limit), limit);
  out.data[blockIdx.y * out.stride + i] = gate / (1.0f + expf(-1.702f * gate)) * (up + 1.0f);
}

template <typename T>
__global__ void ConvertKernel(const float* x, int64_t x_stride, int cols, int padded_cols, T* out,
                              int64_t out_stride) {
  PdlTrigger();
  PdlWait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= padded_cols) return;
  const float value = i < cols ? x[blockIdx.y * x_stride + i] : 0.0f;
  out[blockIdx.y * out_stride + i] = FromFloat<T>(value);
}

// The angle is rounded to float32; sine and cosine are computed in float64.
__global__ void RopeAnglesKernel(const int32_t* positions, const float* inv_freq, int half,
                                 float scale, float* angles, int64_t stride) {
  PdlTrigger();
  PdlWait();
  const int i = threadIdx.x;
  const float angle = __fmul_rn(static_cast<float>(positions[blockIdx.x]), inv_freq[i]);
  double sine, cosine;
  sincos(static_cast<double>(angle), &sine, &cosine);
  float* out = angles + blockIdx.x * stride;
  out[i] = static_cast<float>(cosine * scale);
  out[half + i] = static_cast<float>(sine * scale);
}

__global__ void GatherRowsKernel(const float* x, int64_t x_stride, const int32_t* rows, int cols,
                                 float* out, int64_t out_stride) {
  PdlTrigger();
  PdlWait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < cols) out[blockIdx.y * out_stride + i] = x[rows[blockIdx.y] * x_stride + i];
}

dim3 GridFor(int cols, int rows) { return dim3(CeilDiv(cols, kThreads), rows); }

bool IsAligned(const void* data, size_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// Whether FastRmsNormKernel can read such rows.
bool CanLoad4(MatrixView x, const float* weight) {
  return x.cols % 4 == 0 && x.cols <= 16 * kNormThreads && x.stride % 4 == 0 &&
         IsAligned(x.data, 16) && IsAligned(weight, 16);
}

}  // namespace

void Embed(const Stream& stream, const DevicePlan& plan, const void* table, DType dtype,
           MatrixView out) {
  DispatchFloatType(dtype, [&]<typename T>(T) {
    Launch(stream, EmbedKernel<T>, GridFor(out.cols, out.rows), kThreads, 0, plan.tokens,
           static_cast<const T*>(table), out.cols, out.data, out.stride);
  });
}

bool CanRmsNormToFp8(MatrixView x, const float* weight) {
  return x.cols % kFp8Group == 0 && CanLoad4(x, weight);
}

void RmsNorm(const Stream& stream, MatrixView x, const float* weight, float epsilon, RowsOut out) {
  const auto launch = [&](auto kernel) {
    Launch(stream, kernel, x.rows, kNormThreads, 0, x.data, x.stride, weight, epsilon, out);
  };
  if (out.dtype == DType::kF8E4M3) return launch(FastRmsNormKernel<__nv_fp8_e4m3>);
  const bool fast = CanLoad4(x, weight) && out.stride % 4 == 0 && IsAligned(out.data, 16);
  DispatchFloatType(out.dtype,
                    [&]<typename T>(T) { launch(fast ? FastRmsNormKernel<T> : RmsNormKernel<T>); });
}

void SwiGlu(const Stream& stream, MatrixView gate_up, RowsOut out) {
  DispatchFloatType(out.dtype, [&]<typename T>(T) {
    Launch(stream, SwiGluKernel<T>, GridFor(out.padded_cols, gate_up.rows), kThreads, 0,
           gate_up.data, gate_up.stride, out.cols, out.padded_cols, static_cast<T*>(out.data),
           out.stride);
  });
}

void ClampedGate(const Stream& stream, MatrixView gate_up, float limit, MatrixView out) {
  Launch(stream, ClampedGateKernel, GridFor(out.cols, out.rows), kThreads, 0, gate_up, limit, out);
}

void Convert(const Stream& stream, MatrixView x, RowsOut out) {
  DispatchFloatType(out.dtype, [&]<typename T>(T) {
    Launch(stream, ConvertKernel<T>, GridFor(out.padded_cols, x.rows), kThreads, 0, x.data,
           x.stride, x.cols, out.padded_cols, static_cast<T*>(out.data), out.stride);
  });
}

void RoundToFp8(const Stream& stream, int rows, const RowsOut& x, const RowsOut& out) {
  TALON_CHECK(x.dtype == DType::kBF16 && x.padded_cols == out.padded_cols &&
                  out.padded_cols % (2 * kFp8Group) == 0 && x.stride % 8 == 0,
              "{} columns, {} of FP8", x.padded_cols, out.padded_cols);
  const dim3 blocks(CeilDiv(out.padded_cols, 8 * kThreads), rows);
  Launch(stream, RoundToFp8Kernel, blocks, kThreads, 0, x, out);
}

void RopeAngles(const Stream& stream, const DevicePlan& plan, const float* inv_freq, int half,
                float scale, MatrixView angles) {
  Launch(stream, RopeAnglesKernel, angles.rows, half, 0, plan.positions, inv_freq, half, scale,
         angles.data, angles.stride);
}

void GatherRows(const Stream& stream, MatrixView x, const int32_t* rows, MatrixView out) {
  Launch(stream, GatherRowsKernel, GridFor(out.cols, out.rows), kThreads, 0, x.data, x.stride, rows,
         out.cols, out.data, out.stride);
}

}  // namespace talon::cuda
