// The wgmma instructions of attention. Inline assembly must name each accumulator register, hence
// the macros.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_MMA_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_MMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "compute/cuda/device/hopper.cuh"

namespace talon::cuda {

#define TALON_NAMES_32                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TALON_NAMES_64                                                                           \
  TALON_NAMES_32                                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TALON_ACC_8(i)                                                                  \
  "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3]), "+f"(acc[i + 4]), \
      "+f"(acc[i + 5]), "+f"(acc[i + 6]), "+f"(acc[i + 7])
#define TALON_ACC_32 TALON_ACC_8(0), TALON_ACC_8(8), TALON_ACC_8(16), TALON_ACC_8(24)
#define TALON_ACC_64 \
  TALON_ACC_32, TALON_ACC_8(32), TALON_ACC_8(40), TALON_ACC_8(48), TALON_ACC_8(56)

// acc[64 queries, keys] = or += queries[64, 16] * keys[keys, 16]^T, both in shared memory.
#define TALON_SCORES(count, keys_count, type, q, k, add)                      \
  asm volatile(                                                               \
      "{\n"                                                                   \
      ".reg .pred adds;\n"                                                    \
      "setp.ne.b32 adds, " add                                                \
      ", 0;\n"                                                                \
      "wgmma.mma_async.sync.aligned.m64n" keys_count "k16.f32." type "." type \
      " {" TALON_NAMES_##count "}, " q ", " k                                 \
                               ", adds, 1, 1, 0, 0;\n"                        \
                               "}\n"                                          \
      : TALON_ACC_##count                                                     \
      : "l"(queries), "l"(keys), "r"(adds ? 1 : 0))
#define TALON_DEFINE_SCORES(count, keys_count, q, k, add)                            \
  template <typename T>                                                              \
  __device__ __forceinline__ void MultiplyKeys(float(&acc)[count], uint64_t queries, \
                                               uint64_t keys, bool adds) {           \
    if constexpr (std::is_same_v<T, __half>) {                                       \
      TALON_SCORES(count, keys_count, "f16", q, k, add);                             \
    } else {                                                                         \
      TALON_SCORES(count, keys_count, "bf16", q, k, add);                            \
    }                                                                                \
  }
TALON_DEFINE_SCORES(64, "128", "%64", "%65", "%66")

#define TALON_VALUES(columns, count, type, w0, w1, w2, w3, v, add)                       \
  asm volatile(                                                                          \
      "{\n"                                                                              \
      ".reg .pred adds;\n"                                                               \
      "setp.ne.b32 adds, " add                                                           \
      ", 0;\n"                                                                           \
      "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type               \
      " {" TALON_NAMES_##count "}, {" w0 ", " w1 ", " w2 ", " w3 "}, " v                 \
                               ", adds, 1, 1, 1;\n"                                      \
                               "}\n"                                                     \
      : TALON_ACC_##count                                                                \
      : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "l"(values), \
        "r"(adds ? 1 : 0))

// acc[64 queries, columns] = or += weights[64, 16] * values[16, columns], the weights in registers.
template <typename T>
__device__ __forceinline__ void MultiplyValues(float (&acc)[64], const uint32_t* weights,
                                               uint64_t values, bool adds) {
  if constexpr (std::is_same_v<T, __half>) {
    TALON_VALUES("128", 64, "f16", "%64", "%65", "%66", "%67", "%68", "%69");
  } else {
    TALON_VALUES("128", 64, "bf16", "%64", "%65", "%66", "%67", "%68", "%69");
  }
}
template <typename T>
__device__ __forceinline__ void MultiplyValues(float (&acc)[32], const uint32_t* weights,
                                               uint64_t values, bool adds) {
  if constexpr (std::is_same_v<T, __half>) {
    TALON_VALUES("64", 32, "f16", "%32", "%33", "%34", "%35", "%36", "%37");
  } else {
    TALON_VALUES("64", 32, "bf16", "%32", "%33", "%34", "%35", "%36", "%37");
  }
}

#undef TALON_VALUES
#undef TALON_DEFINE_SCORES
#undef TALON_SCORES
#undef TALON_ACC_64
#undef TALON_ACC_32
#undef TALON_ACC_8
#undef TALON_NAMES_64
#undef TALON_NAMES_32

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_MMA_CUH_
