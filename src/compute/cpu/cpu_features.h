// Which matrix instructions this processor has, found once at run time.
#ifndef TALON_COMPUTE_CPU_CPU_FEATURES_H_
#define TALON_COMPUTE_CPU_CPU_FEATURES_H_

#include <string>

namespace talon {

struct CpuFeatures {
  // Arm
  bool dotprod = false;  // sdot
  bool fp16fml = false;  // fmlal
  bool i8mm = false;     // smmla
  bool bf16 = false;     // bfmmla
  // x86
  bool avx2 = false;
  bool fma = false;          // on 256 bits
  bool avx512 = false;       // the instructions of every AVX-512 server: F, BW, DQ, VL
  bool avx512_vnni = false;  // vpdpbusd on 512 bits
  bool avx512_bf16 = false;  // vdpbf16ps on 512 bits
  bool amx_int8 = false;     // tdpbusd, which the system lets this process use
  bool amx_bf16 = false;     // tdpbf16ps, the same
};

// Thread-safe; the same answer for the life of the process. Asks the system for AMX.
const CpuFeatures& GetCpuFeatures();

// Makes the answer one without AMX. REQUIRES: no other thread has it yet.
void DisableAmx();

// "i8mm + bf16", or "" where there are none.
std::string CpuFeatureNames();

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_CPU_FEATURES_H_
