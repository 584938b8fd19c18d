// The wgmma instruction for each tile of gemm/wgmma.cuh:
//   acc[64 rows, outputs] += x[64, 16] * w[outputs, 16]^T
// with x and w in shared memory (MatrixDescriptor), and for those of quantised/gemm.cuh:
//   acc[64 outputs, rows] += w[64, 16] * x[rows, 16]^T
// with w in registers; and of FP8, 32 inputs at a time:
//   sums[64 rows, outputs] (+)= x[64, 32] * w[outputs, 32]^T
// Inline assembly must name each accumulator register, hence the macros.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_MMA_CUH_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_MMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace talon::cuda {

#define TALON_NAMES_4 "%0, %1, %2, %3"
#define TALON_NAMES_8 TALON_NAMES_4 ", %4, %5, %6, %7"
#define TALON_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TALON_NAMES_24 TALON_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TALON_NAMES_32 \
  TALON_NAMES_16       \
  ", "                 \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TALON_NAMES_48 \
  TALON_NAMES_32       \
  ", "                 \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TALON_NAMES_56 \
  TALON_NAMES_48       \
  ", "                 \
  "%48, %49, %50, %51, %52, %53, %54, %55"
#define TALON_NAMES_64 \
  TALON_NAMES_48       \
  ", "                 \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TALON_NAMES_80 \
  TALON_NAMES_64       \
  ", "                 \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define TALON_NAMES_96 \
  TALON_NAMES_80       \
  ", "                 \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TALON_NAMES_112 \
  TALON_NAMES_96        \
  ", "                  \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define TALON_NAMES_128                                                                        \
  TALON_NAMES_112                                                                              \
  ", "                                                                                         \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"
#define TALON_NAMES_124 \
  TALON_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123"

#define TALON_ACC_4(i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
#define TALON_ACC_AT(i) TALON_ACC_4(i), TALON_ACC_4(i + 4), TALON_ACC_4(i + 8), TALON_ACC_4(i + 12)
#define TALON_ACC_8 TALON_ACC_4(0), TALON_ACC_4(4)
#define TALON_ACC_16 TALON_ACC_AT(0)
#define TALON_ACC_24 TALON_ACC_AT(0), TALON_ACC_4(16), TALON_ACC_4(20)
#define TALON_ACC_32 TALON_ACC_AT(0), TALON_ACC_AT(16)
#define TALON_ACC_48 TALON_ACC_32, TALON_ACC_AT(32)
#define TALON_ACC_56 TALON_ACC_48, TALON_ACC_4(48), TALON_ACC_4(52)
#define TALON_ACC_64 TALON_ACC_48, TALON_ACC_AT(48)
#define TALON_ACC_96 TALON_ACC_64, TALON_ACC_AT(64), TALON_ACC_AT(80)
#define TALON_ACC_112 TALON_ACC_96, TALON_ACC_AT(96)
#define TALON_ACC_124 TALON_ACC_112, TALON_ACC_4(112), TALON_ACC_4(116), TALON_ACC_4(120)
#define TALON_ACC_128 TALON_ACC_112, TALON_ACC_AT(112)

#define TALON_WGMMA(outputs, type, count, x_operand, w_operand)                               \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #outputs "k16.f32." type "." type          \
               " {" TALON_NAMES_##count "}, %" #x_operand ", %" #w_operand ", 1, 1, 1, 0, 0;" \
               : TALON_ACC_##count                                                            \
               : "l"(x), "l"(w))

#define TALON_DEFINE_WGMMA(outputs, count, x_operand, w_operand)                      \
  template <typename Operand>                                                         \
  __device__ __forceinline__ void Wgmma(float(&acc)[count], uint64_t x, uint64_t w) { \
    if constexpr (std::is_same_v<Operand, __half>) {                                  \
      TALON_WGMMA(outputs, "f16", count, x_operand, w_operand);                       \
    } else {                                                                          \
      TALON_WGMMA(outputs, "bf16", count, x_operand, w_operand);                      \
    }                                                                                 \
  }

TALON_DEFINE_WGMMA(32, 16, 16, 17)
TALON_DEFINE_WGMMA(48, 24, 24, 25)
TALON_DEFINE_WGMMA(64, 32, 32, 33)
TALON_DEFINE_WGMMA(96, 48, 48, 49)
TALON_DEFINE_WGMMA(128, 64, 64, 65)
TALON_DEFINE_WGMMA(192, 96, 96, 97)
TALON_DEFINE_WGMMA(224, 112, 112, 113)
TALON_DEFINE_WGMMA(248, 124, 124, 125)
TALON_DEFINE_WGMMA(256, 128, 128, 129)

#define TALON_DEFINE_CODE_WGMMA(rows, count, accumulators, w0, w1, w2, w3, x_operand)        \
  __device__ __forceinline__ void WgmmaOfCodes(float(&acc)[count], const uint32_t(&w)[4],    \
                                               uint64_t x) {                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #rows                                   \
                 "k16.f32.bf16.bf16 {" TALON_NAMES_##count                                   \
                 "}, {%" #w0 ", %" #w1 ", %" #w2 ", %" #w3 "}, %" #x_operand ", 1, 1, 1, 0;" \
                 : accumulators                                                              \
                 : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x));                      \
  }

TALON_DEFINE_CODE_WGMMA(8, 4, TALON_ACC_4(0), 4, 5, 6, 7, 8)
TALON_DEFINE_CODE_WGMMA(16, 8, TALON_ACC_8, 8, 9, 10, 11, 12)
TALON_DEFINE_CODE_WGMMA(32, 16, TALON_ACC_16, 16, 17, 18, 19, 20)
TALON_DEFINE_CODE_WGMMA(64, 32, TALON_ACC_32, 32, 33, 34, 35, 36)
TALON_DEFINE_CODE_WGMMA(128, 64, TALON_ACC_64, 64, 65, 66, 67, 68)

// With `add` false the sums start at zero.
#define TALON_FP8_WGMMA(outputs, count, add, x_operand, w_operand)                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #outputs                                 \
               "k32.f32.e4m3.e4m3 {" TALON_NAMES_##count "}, %" #x_operand ", %" #w_operand \
                                                         ", " #add ", 1, 1;"                \
               : TALON_ACC_##count                                                          \
               : "l"(x), "l"(w))
#define TALON_DEFINE_FP8_WGMMA(outputs, count, x_operand, w_operand)                     \
  template <bool kAdd>                                                                   \
  __device__ __forceinline__ void WgmmaFp8(float(&acc)[count], uint64_t x, uint64_t w) { \
    if constexpr (kAdd) {                                                                \
      TALON_FP8_WGMMA(outputs, count, 1, x_operand, w_operand);                          \
    } else {                                                                             \
      TALON_FP8_WGMMA(outputs, count, 0, x_operand, w_operand);                          \
    }                                                                                    \
  }

TALON_DEFINE_FP8_WGMMA(32, 16, 16, 17)
TALON_DEFINE_FP8_WGMMA(48, 24, 24, 25)
TALON_DEFINE_FP8_WGMMA(64, 32, 32, 33)
TALON_DEFINE_FP8_WGMMA(96, 48, 48, 49)
TALON_DEFINE_FP8_WGMMA(112, 56, 56, 57)
TALON_DEFINE_FP8_WGMMA(128, 64, 64, 65)

#undef TALON_DEFINE_WGMMA
#undef TALON_DEFINE_FP8_WGMMA
#undef TALON_FP8_WGMMA
#undef TALON_DEFINE_CODE_WGMMA
#undef TALON_WGMMA
#undef TALON_ACC_4
#undef TALON_ACC_AT
#undef TALON_ACC_8
#undef TALON_ACC_16
#undef TALON_ACC_24
#undef TALON_ACC_32
#undef TALON_ACC_48
#undef TALON_ACC_56
#undef TALON_ACC_64
#undef TALON_ACC_96
#undef TALON_ACC_112
#undef TALON_ACC_124
#undef TALON_ACC_128
#undef TALON_NAMES_4
#undef TALON_NAMES_8
#undef TALON_NAMES_16
#undef TALON_NAMES_24
#undef TALON_NAMES_32
#undef TALON_NAMES_48
#undef TALON_NAMES_56
#undef TALON_NAMES_64
#undef TALON_NAMES_80
#undef TALON_NAMES_96
#undef TALON_NAMES_112
#undef TALON_NAMES_124
#undef TALON_NAMES_128

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_MMA_CUH_
