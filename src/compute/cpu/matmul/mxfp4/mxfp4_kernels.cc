// The MXFP4 kernel for any machine, and the choice among kernels.
#include "compute/cpu/cpu_features.h"
#include "compute/cpu/matmul/mxfp4/mxfp4_kernels-inl.h"

namespace talon {
namespace {

// The exact sum of a group's products.
int32_t GroupSum(const uint8_t* codes, const int8_t* x) {
  int32_t high = 0;
  int32_t low = 0;
  for (int i = 0; i < kMxfp4GroupBytes; ++i) {
    const int even = kMxfp4Doubled[codes[i] & 15];
    const int odd = kMxfp4Doubled[codes[i] >> 4];
    high += even * x[i] + odd * x[i + kMxfp4GroupBytes];
    low += even * x[i + 2 * kMxfp4GroupBytes] + odd * x[i + 3 * kMxfp4GroupBytes];
  }
  return high * 128 + low;
}

void Tile(const Mxfp4Tile& tile) {
  for (int r = 0; r < tile.rows; ++r) {
    for (int i = 0; i < tile.outputs; ++i) {
      float sum = 0;
      for (int64_t g = 0; g < tile.groups; ++g) {
        const int64_t at = g * tile.rows + r;
        const auto products = static_cast<float>(
            GroupSum(CodesOf(tile, i) + g * kMxfp4GroupBytes, tile.x + at * kMxfp4PackedBytes));
        sum += products * (ScaleOf(tile.scales[g * kMxfp4Outputs + i]) * tile.x_scales[at]);
      }
      tile.sums[r * kMxfp4Outputs + i] = sum;
    }
  }
}

struct KernelList {
  const Mxfp4Kernel* kernels[4] = {};

  KernelList() {
    const Mxfp4Kernel** next = kernels;
    [[maybe_unused]] const CpuFeatures& has = GetCpuFeatures();
#if defined(__aarch64__)
    if (has.i8mm) *next++ = &ArmI8mmMxfp4Kernel();
    if (has.dotprod) *next++ = &ArmDotprodMxfp4Kernel();
#elif defined(__x86_64__)
    if (has.avx512_vnni) *next++ = &X86VnniMxfp4Kernel();
    if (has.avx2 && has.fma) *next++ = &X86Avx2Mxfp4Kernel();
#endif
    *next = &PortableMxfp4Kernel();
  }
};

}  // namespace

const Mxfp4Kernel& PortableMxfp4Kernel() {
  static constexpr Mxfp4Kernel kKernel = {
      .name = "mxfp4 portable", .run = kMxfp4Group, .tile = Tile};
  return kKernel;
}

const Mxfp4Kernel* const* AttainableMxfp4Kernels() {
  static const KernelList list;
  return list.kernels;
}

}  // namespace talon
