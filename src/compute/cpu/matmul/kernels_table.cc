#include "compute/cpu/matmul/kernels_table.h"

#include "base/check.h"
#include "compute/cpu/cpu_features.h"

namespace talon {
namespace {

struct KernelTable {
  static constexpr int kMax = 5;  // with the null
  const MatrixKernel* f32[kMax] = {};
  const MatrixKernel* f16[kMax] = {};
  const MatrixKernel* bf16[kMax] = {};
  const MatrixKernel* int8[kMax] = {};
  const MatrixKernel* int4[kMax] = {};

  KernelTable() {
    AddForArchitecture();
    Append(f32, FloatKernel(DType::kF32));
    Append(f16, FloatKernel(DType::kF16));
    Append(bf16, FloatKernel(DType::kBF16));
    Append(int8, PortableInt8Kernel());
    Append(int4, PortableInt4Kernel());
  }

 private:
  static void Append(const MatrixKernel* (&list)[kMax], const MatrixKernel& kernel) {
    int at = 0;
    while (list[at] != nullptr) ++at;
    TALON_CHECK(at < kMax - 1, "kernel table is full");
    list[at] = &kernel;
  }

  void AddForArchitecture() {
    [[maybe_unused]] const CpuFeatures& has = GetCpuFeatures();
#if defined(__aarch64__)
    if (has.bf16) Append(bf16, ArmBf16Kernel());
    if (has.fp16fml) Append(f16, ArmFp16Kernel());
    if (has.i8mm) Append(int8, ArmI8mmKernel());
    if (has.i8mm) Append(int4, ArmI8mmInt4Kernel());
    if (has.dotprod) Append(int8, ArmDotprodKernel());
    if (has.dotprod) Append(int4, ArmDotprodInt4Kernel());
#elif defined(__x86_64__)
    if (has.amx_bf16) Append(bf16, X86AmxBf16Kernel());
    if (has.avx512_bf16) Append(bf16, X86Bf16Kernel());
    if (has.avx512) Append(bf16, X86Avx512Bf16Kernel());
    if (has.amx_int8) Append(int8, X86AmxInt8Kernel());
    if (has.avx512_vnni) Append(int8, X86VnniKernel());
    if (has.amx_int8 && has.avx512_vnni) Append(int4, X86AmxInt4Kernel());
    if (has.avx512_vnni) Append(int4, X86VnniInt4Kernel());
    if (has.avx2) Append(int8, X86Avx2Kernel());
    if (has.avx2 && has.fma) Append(int4, X86Avx2Int4Kernel());
#endif
  }
};

}  // namespace

const MatrixKernel* const* AttainableKernels(DType weight_type) {
  static const KernelTable table;
  switch (weight_type) {
    case DType::kF32:
      return table.f32;
    case DType::kF16:
      return table.f16;
    case DType::kBF16:
      return table.bf16;
    case DType::kI8:
      return table.int8;
    case DType::kI4:
      return table.int4;
    default:
      TALON_CHECK(false, "no matrix kernel for {}", DTypeName(weight_type));
  }
}

}  // namespace talon
