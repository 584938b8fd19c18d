// GEMM with weights: out = x * w^T (+ bias), or out += that. The bits of an output row depend on
// that row of x and the weight alone, and do not change if the weight is one rank's outputs of it.
#ifndef TALON_COMPUTE_CUDA_GEMM_GEMM_H_
#define TALON_COMPUTE_CUDA_GEMM_GEMM_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "compute/cuda/gemm/heads.h"
#include "compute/cuda/gemm/quantised/gemm.h"
#include "compute/cuda/gemm/stream.h"
#include "compute/cuda/gemm/weight.h"
#include "compute/cuda/gemm/wgmma.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/runtime/rows_out.h"
#include "compute/matrix.h"

namespace talon::cuda {

// The left operand, in the weight's operand_dtype() and with its padded_cols() columns, zero from
// cols() on. REQUIRES: 16-byte aligned rows.
struct Operand {
  const void* data = nullptr;
  int rows = 0;
  int64_t stride = 0;             // elements
  const float* scales = nullptr;  // FP8: as those of RowsOut
  int64_t scale_stride = 0;
};

// One GEMM: out = x * w^T (+ bias), or out += that.
struct GemmCall {
  Operand x;
  const CudaWeight* w = nullptr;
  const float* bias = nullptr;  // [w->rows()] or null
  MatrixView out;
  bool accumulate = false;
  bool gates = false;  // the outputs are gate and up of SwiGLU
  HeadsOut heads;      // QKV epilogue into `out` and the cache, where StoresHeads
};

class Gemm {
 public:
  // `stream` must outlive this.
  explicit Gemm(const Stream& stream) : stream_(&stream) {}

  // Whether GEMMs can read quantised weights as codes.
  Result<bool> ReadsCodes();
  // Allocates the memory that GEMMs with `w` need. Called once for each weight, before Run.
  Status Reserve(const CudaWeight& w);

  // Queues the GEMM; neither allocates nor synchronises.
  void Run(const GemmCall& call);

  // Whether RunSwiGlu with such a weight should round so many rows to FP8. The bits are those of
  // bf16 rows that are rounded afterwards.
  bool RoundsSwiGlu(const CudaWeight& gate_up, int rows) const;
  // Queues out = SwiGlu(x * gate_up^T + bias) with SwiGLU fused into the epilogue; the first half
  // of gate_up's rows is the gate. Returns false and queues nothing where no kernel supports it.
  // REQUIRES: out is not FP8, or RoundsSwiGlu.
  bool RunSwiGlu(const Operand& x, const CudaWeight& gate_up, const float* bias,
                 const RowsOut& out);

  // Whether a QKV GEMM with `w` can rotate heads of this size, `rotated` elements of each, and
  // store K and V in its epilogue.
  bool StoresHeads(const CudaWeight& w, int rows, int head_dim, int rotated) const;

 private:
  bool IsForWgmma(const CudaWeight& w) const {
    return wgmma_ != nullptr &&
           (w.dtype() == DType::kBF16 || w.dtype() == DType::kF16 || w.fp8_activations());
  }
  static WgmmaWeight WgmmaWeightOf(const CudaWeight& w);
  void RunWgmma(const CudaWeight& w, WgmmaGemm::Call call);
  // Makes the kernels ready, once.
  Status Probe();
  void RunStream(const GemmCall& call);

  const Stream* stream_;
  Buffer partials_;
  Buffer arrivals_;
  bool wgmma_probed_ = false;
  std::unique_ptr<WgmmaGemm> wgmma_;  // null where the device or build does not support it
  std::unique_ptr<CodeGemm> codes_;   // the same
};

// The arguments of the weight-streaming kernel, except `partials` and `arrivals`. `blocks` bounds
// the split-K factor (ChooseSplits).
StreamArgs MakeStreamArgs(const StreamKernel& kernel, const Operand& x, const CudaWeight& w,
                          const float* bias, MatrixView out, int blocks);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_GEMM_H_
