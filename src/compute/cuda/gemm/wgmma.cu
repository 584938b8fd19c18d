#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/cuda/gemm/wgmma.h"
#include "compute/cuda/runtime/device_memory.h"

namespace talon::cuda {
namespace {

// Dynamic shared memory that a block may use besides its static mbarriers.
constexpr int kMaxSharedBytes = 226 << 10;

WgmmaFunction KernelFor(DType dtype, const WgmmaPlan& plan) {
  const WgmmaKernels& kernels = dtype == DType::kF16 ? WgmmaKernelsF16() : WgmmaKernelsBF16();
  if (plan.segments > 1 && !plan.splits) {
    TALON_CHECK(plan.outputs == kSegmentedOutputs);
    return kernels.segmented;
  }
  const auto found = std::ranges::find(kWgmmaOutputs, plan.outputs);
  TALON_CHECK(found != kWgmmaOutputs.end(), "no tile of {} outputs", plan.outputs);
  return kernels.tiles[found - kWgmmaOutputs.begin()];
}

// Without sm_90a in the build or the device the kernel is empty or missing; the real kernel has 128
// accumulators in registers.
bool IsCompiledIn() {
  cudaFuncAttributes attributes;
  const auto error = cudaFuncGetAttributes(&attributes, WgmmaKernelsBF16().tiles.back());
  if (error != cudaSuccess) cudaGetLastError();  // clears the error for the next call
  return error == cudaSuccess && attributes.numRegs >= kWgmmaOutputs.back() / 2;
}

PFN_cuTensorMapEncodeTiled_v12000 FindEncoder() {
  constexpr int kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion,
                                                      cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

Result<std::unique_ptr<WgmmaGemm>> WgmmaGemm::Create(const Stream& stream) {
  const auto encode = FindEncoder();
  if (encode == nullptr || !IsCompiledIn()) return std::unique_ptr<WgmmaGemm>();
  for (const WgmmaKernels* kernels : {&WgmmaKernelsBF16(), &WgmmaKernelsF16()}) {
    for (const WgmmaFunction kernel : kernels->tiles) AllowSharedMemory(kernel, kMaxSharedBytes);
    AllowSharedMemory(kernels->segmented, kMaxSharedBytes);
  }
  std::unique_ptr<WgmmaGemm> gemm(new WgmmaGemm(stream, encode));
  constexpr size_t kRows = kMaxGroups * kGroupRows;
  const size_t accumulators = kRows * kWgmmaOutputs.back() * stream.multiprocessors;
  TALON_ASSIGN_OR_RETURN(gemm->partials_, AllocateDevice(stream, accumulators * sizeof(float)));
  const size_t arrivals = stream.multiprocessors * sizeof(int32_t);
  TALON_ASSIGN_OR_RETURN(gemm->arrivals_, AllocateDevice(stream, arrivals));
  return std::move(gemm);
}

CUtensorMap WgmmaGemm::MapOf(const void* data, DType dtype, int64_t rows, int64_t cols,
                             int64_t stride, int box_rows) const {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes = static_cast<cuuint64_t>(stride) * 2;
  const cuuint32_t box[2] = {kWgmmaStageCols, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode_(
      &map,
      dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
      const_cast<void*>(data), sizes, &row_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TALON_CHECK(result == CUDA_SUCCESS, "cuda: no tensor map of {} x {}, stride {}, box {}: error {}",
              rows, cols, stride, box_rows, static_cast<int>(result));
  return map;
}

WgmmaPlan WgmmaGemm::Plan(const Call& call) const {
  return ChooseWgmmaPlan(call.w->rows(), call.w->padded_cols() / kWgmmaStageCols, call.rows,
                         stream_.multiprocessors, call.swiglu.data != nullptr);
}

void WgmmaGemm::Run(const Call& call, const WgmmaPlan& plan) const {
  const CudaWeight& w = *call.w;
  const bool swiglu = call.swiglu.data != nullptr;
  WgmmaArgs args;
  args.bias = call.bias;
  args.out = call.out.data;
  args.out_stride = call.out.stride;
  args.rows = call.rows;
  args.outputs = swiglu ? call.swiglu.cols : w.rows();
  args.groups = call.rows > kGroupRows ? 2 : 1;
  args.stage_rows = StageRows(call.rows, args.groups);
  args.box_rows = std::min(call.rows, args.groups * kGroupRows);
  args.row_tiles = CeilDiv(call.rows, args.groups * kGroupRows);
  args.swiglu = swiglu;
  args.operand = call.swiglu.data;
  args.operand_stride = call.swiglu.stride;
  args.padded_outputs = call.swiglu.padded_cols;
  const int box_outputs = swiglu ? plan.outputs / 2 : plan.outputs;
  args.items = args.row_tiles * CeilDiv(swiglu ? args.padded_outputs : args.outputs, box_outputs);
  args.stages = w.padded_cols() / kWgmmaStageCols;
  args.segments = plan.segments;
  args.splits = plan.splits ? plan.segments : 1;
  args.ring = RingStages(plan, args.stage_rows);
  args.partials = static_cast<float*>(partials_.data());
  args.arrivals = static_cast<int32_t*>(arrivals_.data());
  args.accumulate = call.accumulate;
  args.aligned = call.out.stride % 4 == 0 && reinterpret_cast<uintptr_t>(call.out.data) % 16 == 0;
  TALON_CHECK(args.splits == 1 ||
              (args.row_tiles == 1 && args.items * args.splits <= stream_.multiprocessors));
  const int blocks = std::min(args.items * args.splits, stream_.multiprocessors);
  const CUtensorMap weights =
      MapOf(w.data(), w.dtype(), w.rows(), w.padded_cols(), w.padded_cols(), box_outputs);
  const CUtensorMap x =
      MapOf(call.x, w.dtype(), call.rows, w.padded_cols(), call.x_stride, args.box_rows);
  cuda::Launch(stream_, KernelFor(w.dtype(), plan), blocks, args.groups * 128 + 32,
               WgmmaSharedBytes(plan, args.stage_rows), weights, x, args);
}

}  // namespace talon::cuda
