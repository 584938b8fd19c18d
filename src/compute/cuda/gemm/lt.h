// Products by cuBLASLt, for many rows. Which algorithm does a shape is asked once and remembered.
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
  const void* weights = nullptr;  // [out.cols, cols], rows follow each other
  int cols = 0;
  DType dtype = DType::kBF16;   // of x and weights: kBF16, kF16, kF32
  const float* bias = nullptr;  // [out.cols] or null
  MatrixView out;
  bool accumulate = false;
};

class LtProduct {
 public:
  static Result<std::unique_ptr<LtProduct>> Create(const Stream& stream);
  ~LtProduct();
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // False if the library has no algorithm for the shape; nothing is queued then.
  bool Run(const LtArgs& args);

 private:
  struct Plan {  // algo is void where there is none
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t weights = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t algo = {};
    bool found = false;
  };
  using Key = std::array<int64_t, 9>;

  explicit LtProduct(const Stream& stream) : stream_(stream) {}
  Plan MakePlan(const LtArgs& args);
  void ChooseAlgorithm(const LtArgs& args, Plan* plan);

  Stream stream_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::map<Key, Plan> plans_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_LT_H_
