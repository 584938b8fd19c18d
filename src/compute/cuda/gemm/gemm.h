// Matrix products with weights: out = x * w^T (+ bias), or out += that. Picks the kernel by the
// number of rows and the weight's format.
#ifndef TALON_COMPUTE_CUDA_GEMM_GEMM_H_
#define TALON_COMPUTE_CUDA_GEMM_GEMM_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "compute/cuda/elementwise.h"
#include "compute/cuda/gemm/heads.h"
#include "compute/cuda/gemm/lt.h"
#include "compute/cuda/gemm/stream.h"
#include "compute/cuda/gemm/weight.h"
#include "compute/cuda/gemm/wgmma.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/matrix.h"

namespace talon::cuda {

// The left operand, in the weight's operand_dtype() and with its padded_cols() columns, zero from
// cols() on. REQUIRES: 16-byte aligned rows.
struct Operand {
  const void* data = nullptr;
  int rows = 0;
  int64_t stride = 0;  // elements
};

// out = x * w^T (+ bias), or out += that.
struct Product {
  Operand x;
  const CudaWeight* w = nullptr;
  const float* bias = nullptr;  // [w->rows()] or null
  MatrixView out;
  bool accumulate = false;
  HeadsOut heads;  // in `out` and the cache, where StoresHeads
};

class Gemm {
 public:
  // Deterministic: the bits of an output row depend on that row of x and the weight alone.
  // `stream` must outlive this.
  Gemm(const Stream& stream, bool deterministic)
      : stream_(&stream), deterministic_(deterministic) {}

  // Gets the memory that products with `w` need. Once for each weight, before Run.
  Status Reserve(const CudaWeight& w);

  // Queues the product; allocates nothing and waits for nothing.
  void Run(const Product& product);

  // Queues out = SwiGlu(x * gate_up^T + bias), of which gate_up's first half of rows is the gate.
  // False, and nothing is queued, where no kernel does both at once.
  bool RunSwiGlu(const Operand& x, const CudaWeight& gate_up, const float* bias,
                 const RowsOut& out);

  // Whether a QKV product with `w` can rotate heads of this size, `rotated` elements of each, and
  // store K and V.
  bool StoresHeads(const CudaWeight& w, int rows, int head_dim, int rotated) const;

 private:
  // What does a product.
  enum class Route { kF32, kStream, kWgmma, kLibrary };
  Route RouteOf(const CudaWeight& w, int rows, bool swiglu) const;
  struct StreamChoice {
    StreamTileKind tile;
    int blocks;
  };
  StreamChoice ChooseStream(const Product& product) const;
  bool IsForWgmma(const CudaWeight& w, int rows, bool swiglu) const;
  void RunF32(const Product& product);
  void RunStream(const Product& product);
  bool IsForPersistent(const CudaWeight& gate_up, int rows) const;
  void RunPersistent(const Operand& x, const CudaWeight& gate_up, const float* bias,
                     const RowsOut& out);
  bool RunLt(const Product& product);
  bool RunDequantised(const Product& product);

  const Stream* stream_;
  bool deterministic_;
  Buffer partials_;
  Buffer arrivals_;
  Buffer dequantised_;
  std::unique_ptr<LtProduct> lt_;
  bool asked_for_wgmma_ = false;
  std::unique_ptr<WgmmaProduct> wgmma_;  // null where there is none
};

// The arguments of the streaming kernel, but for `partials` and `arrivals`. `blocks` bounds the
// splits (ChooseSplits).
StreamArgs MakeStreamArgs(const StreamKernel& kernel, const Operand& x, const CudaWeight& w,
                          const float* bias, MatrixView out, int blocks);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_GEMM_H_
