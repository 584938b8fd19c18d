#include "compute/cpu/cpu_features.h"

#include <utility>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace talon {
namespace {

#if defined(__x86_64__)
// Asks Linux to let all threads of the process, also later ones, use the registers of AMX.
bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

void DetectAmx(CpuFeatures* found) {
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24, kInt8 = 1U << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || !MayUseTiles()) return;
  found->amx_int8 = (d & kInt8) != 0;
  found->amx_bf16 = (d & kBf16) != 0;
}
#endif

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
  DetectAmx(&found);
#endif
  return found;
}

CpuFeatures& Features() {
  static CpuFeatures features = Detect();
  return features;
}

}  // namespace

const CpuFeatures& GetCpuFeatures() { return Features(); }

void DisableAmx() { Features().amx_int8 = Features().amx_bf16 = false; }

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
      {has.amx_int8, "amx-int8"},
      {has.amx_bf16, "amx-bf16"},
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
