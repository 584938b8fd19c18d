#include "compute/cpu/kernels_table.h"

#include "base/check.h"
#include "compute/cpu/cpu_features.h"

namespace talon {
namespace {

struct KernelTable {
  static constexpr int kMax = 4;
  const MatrixKernel* f32[kMax] = {};
  const MatrixKernel* f16[kMax] = {};
  const MatrixKernel* bf16[kMax] = {};
  const MatrixKernel* int8[kMax] = {};

  KernelTable() {
    AddForArchitecture();
    Append(f32, FloatKernel(DType::kF32));
    Append(f16, FloatKernel(DType::kF16));
    Append(bf16, FloatKernel(DType::kBF16));
    Append(int8, PortableInt8Kernel());
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
    if (has.dotprod) Append(int8, ArmDotprodKernel());
#elif defined(__x86_64__)
    if (has.avx512_bf16) Append(bf16, X86Bf16Kernel());
    if (has.avx512_vnni) Append(int8, X86VnniKernel());
    if (has.avx2) Append(int8, X86Avx2Kernel());
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
    default:
      TALON_CHECK(false, "no matrix kernel for {}", DTypeName(weight_type));
  }
}

}  // namespace talon
