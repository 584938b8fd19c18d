// GEMM with quantised weights on Hopper: out = x * w^T. For few rows codes are streamed through
// shared memory, expanded in registers and multiplied by wgmma as its left operand; for many rows
// they are expanded to bf16, part by part, for the bf16 GEMM (gemm/wgmma.h). The bits of an output
// are the same.
#ifndef TALON_COMPUTE_CUDA_GEMM_QUANTISED_GEMM_H_
#define TALON_COMPUTE_CUDA_GEMM_QUANTISED_GEMM_H_

#include <cuda.h>

#include <array>

#include "base/status.h"
#include "compute/cuda/gemm/quantised/layout.h"
#include "compute/cuda/gemm/weight.h"
#include "compute/cuda/gemm/wgmma.h"

namespace talon::cuda {

struct CodeArgs {
  WgmmaArgs common;
  const uint8_t* codes = nullptr;  // tiles, [output tiles][col_tiles]
  int tile_bytes = 0;
  int col_tiles = 0;
  int stage_tiles = 1;
  int up_tile = 0;  // SwiGLU: the first output tile of the second half
};

// The kernels of a format and what its tiles hold, for kCodeRowTiles.
using CodeFunction = void (*)(CUtensorMap x, CodeArgs);
using CodeKernels = std::array<CodeFunction, kCodeRowTiles.size()>;
const CodeKernels& CodeKernelsInt8();
const CodeKernels& CodeKernelsFp8(const CodeTiles& tiles);
const CodeKernels& CodeKernelsInt4(const CodeTiles& tiles);

class CodeGemm {
 public:
  // `stream` and `wgmma` must outlive this.
  CodeGemm(const Stream& stream, const WgmmaGemm* wgmma) : stream_(stream), wgmma_(wgmma) {}

  // Allocates the memory that GEMMs with `w` need.
  Status Reserve(const CudaWeight& w);
  // As WgmmaGemm::Run, `call.w` aside.
  void Run(const CudaWeight& w, const WgmmaGemm::Call& call) const;
  // Whether SwiGLU with `w` can be in the epilogue.
  static bool CanGate(const CudaWeight& w) { return w.rows() % (2 * kCodeTileCols) == 0; }

 private:
  void RunCodes(const CudaWeight& w, const WgmmaGemm::Call& call, const CodePlan& plan) const;
  void RunExpanded(const CudaWeight& w, WgmmaGemm::Call call, const WgmmaPlan& plan) const;

  Stream stream_;
  const WgmmaGemm* wgmma_;
  Buffer expanded_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_QUANTISED_GEMM_H_
