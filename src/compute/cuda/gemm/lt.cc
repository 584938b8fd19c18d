#include "compute/cuda/gemm/lt.h"

#include <algorithm>
#include <utility>

#include "compute/cuda/runtime/device_memory.h"

namespace talon::cuda {
namespace {

constexpr size_t kWorkspaceBytes = 32 << 20;  // NVIDIA's recommendation for Hopper

#define TALON_LT_CHECK(call)                                                                 \
  do {                                                                                       \
    const cublasStatus_t talon_lt_status = (call);                                           \
    if (talon_lt_status != CUBLAS_STATUS_SUCCESS) {                                          \
      throw DeviceFault(                                                                     \
          fmt::format("cublasLt: {}: {}", #call, cublasLtGetStatusString(talon_lt_status))); \
    }                                                                                        \
  } while (false)

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      TALON_CHECK(dtype == DType::kF32, "type {}", DTypeName(dtype));
      return CUDA_R_32F;
  }
}

// Largest power of two, up to 256 (the most that cuBLASLt considers), that divides the address.
uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint32_t>(std::min<uintptr_t>(256, address & (~address + 1)));
}

template <typename T>
void SetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const T& value) {
  TALON_LT_CHECK(cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof(value)));
}

template <typename T>
void SetPreference(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
                   const T& value) {
  TALON_LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)));
}

}  // namespace

Result<std::unique_ptr<LtGemm>> LtGemm::Create(const Stream& stream) {
  std::unique_ptr<LtGemm> lt(new LtGemm(stream));
  const cublasStatus_t status = cublasLtCreate(&lt->handle_);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return Internal("cublasLt does not start: {}", cublasLtGetStatusString(status));
  }
  TALON_ASSIGN_OR_RETURN(lt->workspace_, AllocateDevice(stream, kWorkspaceBytes));
  return lt;
}

LtGemm::~LtGemm() {
  for (auto& [key, plan] : plans_) {
    cublasLtMatrixLayoutDestroy(plan.weights);
    cublasLtMatrixLayoutDestroy(plan.x);
    cublasLtMatrixLayoutDestroy(plan.out);
    cublasLtMatmulDescDestroy(plan.matmul);
  }
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

// cuBLASLt is column-major: a row-major matrix here is its transpose there, so the call computes
// out^T [outputs, rows] = weights * x^T.
LtGemm::Plan LtGemm::MakePlan(const LtArgs& args) {
  Plan plan;
  const cudaDataType_t type = TypeOf(args.dtype);
  TALON_LT_CHECK(cublasLtMatmulDescCreate(&plan.matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  SetAttribute(plan.matmul, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  SetAttribute(plan.matmul, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  if (args.bias != nullptr) {
    SetAttribute(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    SetAttribute(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
  }
  TALON_LT_CHECK(
      cublasLtMatrixLayoutCreate(&plan.weights, type, args.cols, args.out.cols, args.cols));
  TALON_LT_CHECK(
      cublasLtMatrixLayoutCreate(&plan.x, type, args.cols, args.out.rows, args.x_stride));
  TALON_LT_CHECK(cublasLtMatrixLayoutCreate(&plan.out, CUDA_R_32F, args.out.cols, args.out.rows,
                                            args.out.stride));
  ChooseAlgorithm(args, &plan);
  return plan;
}

void LtGemm::ChooseAlgorithm(const LtArgs& args, Plan* plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  TALON_LT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  SetPreference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  SetPreference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(args.weights));
  SetPreference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(args.x));
  SetPreference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(args.out.data));
  SetPreference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(args.out.data));
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan->matmul, plan->weights, plan->x, plan->out,
                                     plan->out, preference, 1, &result, &count);
  plan->found = status == CUBLAS_STATUS_SUCCESS && count > 0;
  plan->algo = result.algo;
  cublasLtMatmulPreferenceDestroy(preference);
}

bool LtGemm::Run(const LtArgs& args) {
  const Key key = {args.out.rows,
                   args.out.cols,
                   args.out.stride,
                   args.cols,
                   args.x_stride,
                   static_cast<int64_t>(args.dtype) * 2 + (args.bias != nullptr),
                   AlignmentOf(args.weights),
                   AlignmentOf(args.x),
                   AlignmentOf(args.out.data)};
  auto [entry, is_new] = plans_.try_emplace(key);
  Plan& plan = entry->second;
  if (is_new) plan = MakePlan(args);
  if (!plan.found) return false;
  if (args.bias != nullptr) {
    SetAttribute(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
  }
  const float alpha = 1;
  const float beta = args.accumulate ? 1 : 0;
  TALON_LT_CHECK(cublasLtMatmul(handle_, plan.matmul, &alpha, args.weights, plan.weights, args.x,
                                plan.x, &beta, args.out.data, plan.out, args.out.data, plan.out,
                                &plan.algo, workspace_.data(), kWorkspaceBytes, stream_.handle));
  return true;
}

}  // namespace talon::cuda
