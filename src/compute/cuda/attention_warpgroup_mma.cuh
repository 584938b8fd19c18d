// The instruction wgmma as attention uses it. The registers of an instruction must be named one by
// one, hence the macros.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_MMA_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_MMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace talon::cuda {

#define TALON_NAMES_32                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TALON_NAMES_64                                                                           \
  TALON_NAMES_32                                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TALON_SUMS_8(i)                                                                      \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define TALON_SUMS_32 TALON_SUMS_8(0), TALON_SUMS_8(8), TALON_SUMS_8(16), TALON_SUMS_8(24)
#define TALON_SUMS_64 \
  TALON_SUMS_32, TALON_SUMS_8(32), TALON_SUMS_8(40), TALON_SUMS_8(48), TALON_SUMS_8(56)

#define TALON_SCORES(type)                                                             \
  asm volatile(                                                                        \
      "{\n"                                                                            \
      ".reg .pred adds;\n"                                                             \
      "setp.ne.b32 adds, %66, 0;\n"                                                    \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" TALON_NAMES_64 \
      "}, %64, %65, adds, 1, 1, 0, 0;\n"                                               \
      "}\n"                                                                            \
      : TALON_SUMS_64                                                                  \
      : "l"(queries), "l"(keys), "r"(adds ? 1 : 0))

// sums[64 queries, 128 keys] = or += queries[64, 16] * keys[128, 16]^T, both in shared memory.
template <typename T>
__device__ __forceinline__ void MultiplyKeys(float (&sums)[64], uint64_t queries, uint64_t keys,
                                             bool adds) {
  if constexpr (std::is_same_v<T, __half>) {
    TALON_SCORES("f16");
  } else {
    TALON_SCORES("bf16");
  }
}

#define TALON_VALUES(columns, count, type, w0, w1, w2, w3, place)                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type   \
               " {" TALON_NAMES_##count "}, {" w0 ", " w1 ", " w2 ", " w3 "}, " place \
                                        ", 1, 1, 1, 1;\n"                             \
               : TALON_SUMS_##count                                                   \
               : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "l"(values))

// sums[64 queries, columns] += weights[64, 16] * values[16, columns], the weights in registers.
template <typename T>
__device__ __forceinline__ void MultiplyValues(float (&sums)[64], const uint32_t* weights,
                                               uint64_t values) {
  if constexpr (std::is_same_v<T, __half>) {
    TALON_VALUES("128", 64, "f16", "%64", "%65", "%66", "%67", "%68");
  } else {
    TALON_VALUES("128", 64, "bf16", "%64", "%65", "%66", "%67", "%68");
  }
}
template <typename T>
__device__ __forceinline__ void MultiplyValues(float (&sums)[32], const uint32_t* weights,
                                               uint64_t values) {
  if constexpr (std::is_same_v<T, __half>) {
    TALON_VALUES("64", 32, "f16", "%32", "%33", "%34", "%35", "%36");
  } else {
    TALON_VALUES("64", 32, "bf16", "%32", "%33", "%34", "%35", "%36");
  }
}

#undef TALON_VALUES
#undef TALON_SCORES
#undef TALON_SUMS_64
#undef TALON_SUMS_32
#undef TALON_SUMS_8
#undef TALON_NAMES_64
#undef TALON_NAMES_32

// Threads [0, count) of barrier `id` wait for each other.
__device__ __forceinline__ void SyncThreads(int id, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// What was written to shared memory before is seen by the tensor cores after.
__device__ __forceinline__ void FenceForTensorCores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives when all copies that this thread has started are there.
__device__ __forceinline__ void ArriveWithCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

template <int Registers>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_MMA_CUH_
