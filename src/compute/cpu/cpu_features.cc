#include "compute/cpu/cpu_features.h"

#include <utility>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace talon {
namespace {

CpuFeatures Detect() {
  CpuFeatures found;
#if defined(__aarch64__)
  const unsigned long caps = getauxval(AT_HWCAP);
  const unsigned long caps2 = getauxval(AT_HWCAP2);
  found.dotprod = (caps & HWCAP_ASIMDDP) != 0;
  found.fp16fml = (caps & HWCAP_ASIMDFHM) != 0;
  found.i8mm = (caps2 & HWCAP2_I8MM) != 0;
  found.bf16 = (caps2 & HWCAP2_BF16) != 0;
#elif defined(__x86_64__)
  __builtin_cpu_init();
  found.avx2 = __builtin_cpu_supports("avx2") != 0;
  found.fma = __builtin_cpu_supports("fma") != 0;
  found.avx512 = __builtin_cpu_supports("avx512f") != 0 &&
                 __builtin_cpu_supports("avx512bw") != 0 &&
                 __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  found.avx512_vnni = found.avx512 && __builtin_cpu_supports("avx512vnni") != 0;
  found.avx512_bf16 = found.avx512 && __builtin_cpu_supports("avx512bf16") != 0;
#endif
  return found;
}

}  // namespace

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

std::string CpuFeatureNames() {
  const CpuFeatures& has = GetCpuFeatures();
  const std::pair<bool, const char*> named[] = {
      {has.dotprod, "dotprod"},
      {has.fp16fml, "fp16fml"},
      {has.i8mm, "i8mm"},
      {has.bf16, "bf16"},
      {has.avx2, "avx2"},
      {has.fma, "fma"},
      {has.avx512, "avx512"},
      {has.avx512_vnni, "avx512-vnni"},
      {has.avx512_bf16, "avx512-bf16"},
  };
  std::string names;
  for (const auto& [present, name] : named) {
    if (!present) continue;
    if (!names.empty()) names += " + ";
    names += name;
  }
  return names;
}

}  // namespace talon
