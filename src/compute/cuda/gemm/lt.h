// GEMM by cuBLASLt, for many rows. The algorithm of a shape is queried once and cached.
#ifndef TALON_COMPUTE_CUDA_GEMM_LT_H_
#define TALON_COMPUTE_CUDA_GEMM_LT_H_

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "base/status.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/dtype.h"
#include "compute/matrix.h"

namespace talon::cuda {

struct LtArgs {
  const void* x = nullptr;  // [out.rows, x_stride]
  int64_t x_stride = 0;
  const void* weights = nullptr;  // [out.cols, cols], contiguous rows
  int cols = 0;
  DType dtype = DType::kBF16;   // type of x and weights: kBF16, kF16, kF32
  const float* bias = nullptr;  // [out.cols] or null
  MatrixView out;
  bool accumulate = false;
};

class LtGemm {
 public:
  static Result<std::unique_ptr<LtGemm>> Create(const Stream& stream);
  ~LtGemm();
  LtGemm(const LtGemm&) = delete;
  LtGemm& operator=(const LtGemm&) = delete;

  // Returns false and queues nothing if cuBLASLt has no algorithm for the shape.
  bool Run(const LtArgs& args);

 private:
  struct Plan {  // algo is valid only if found
    cublasLtMatmulDesc_t matmul = nullptr;
    cublasLtMatrixLayout_t weights = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t algo = {};
    bool found = false;
  };
  using Key = std::array<int64_t, 9>;

  explicit LtGemm(const Stream& stream) : stream_(stream) {}
  Plan MakePlan(const LtArgs& args);
  void ChooseAlgorithm(const LtArgs& args, Plan* plan);

  Stream stream_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::map<Key, Plan> plans_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_LT_H_
