#include <algorithm>

#include "base/check.h"
#include "compute/cuda/gemm_wgmma.h"

namespace talon::cuda {
namespace {

// What a block may ask for beside its barriers.
constexpr int kMaxSharedBytes = 226 << 10;

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

WgmmaFunction KernelFor(DType dtype, int outputs) {
  const WgmmaKernels& kernels = dtype == DType::kF16 ? WgmmaKernelsF16() : WgmmaKernelsBF16();
  const auto found = std::ranges::find(kWgmmaOutputs, outputs);
  TALON_CHECK(found != kWgmmaOutputs.end(), "no tile of {} outputs", outputs);
  return kernels[found - kWgmmaOutputs.begin()];
}

// Builds and devices without sm_90a's instructions have an empty kernel or none. With its body the
// kernel keeps 128 sums in registers.
bool IsCompiledIn() {
  cudaFuncAttributes attributes;
  const auto error = cudaFuncGetAttributes(&attributes, WgmmaKernelsBF16().back());
  if (error != cudaSuccess) cudaGetLastError();  // not for the next call to find
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

// A launch configuration and the attributes it points to.
struct LaunchSetup {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
};

void SetUp(const Stream& stream, int blocks, const WgmmaPlan& plan, int groups,
           LaunchSetup* setup) {
  unsigned count = 0;
  if (stream.overlaps) {
    setup->attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    setup->attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (plan.splits > 1) {
    setup->attributes[count].id = cudaLaunchAttributeClusterDimension;
    setup->attributes[count++].val.clusterDim = {static_cast<unsigned>(plan.splits), 1, 1};
  }
  setup->config.gridDim = static_cast<unsigned>(blocks);
  setup->config.blockDim = static_cast<unsigned>(groups * 128 + 32);
  setup->config.dynamicSmemBytes = static_cast<size_t>(WgmmaSharedBytes(plan, groups));
  setup->config.stream = stream.handle;
  setup->config.attrs = setup->attributes;
  setup->config.numAttrs = count;
}

}  // namespace

std::unique_ptr<WgmmaProduct> WgmmaProduct::Create(const Stream& stream) {
  const auto encode = FindEncoder();
  if (encode == nullptr || !IsCompiledIn()) return nullptr;
  for (const WgmmaKernels* kernels : {&WgmmaKernelsBF16(), &WgmmaKernelsF16()}) {
    for (const WgmmaFunction kernel : *kernels) AllowSharedMemory(kernel, kMaxSharedBytes);
  }
  std::unique_ptr<WgmmaProduct> product(new WgmmaProduct(stream, encode));
  product->CountClusters();
  return product;
}

void WgmmaProduct::CountClusters() {
  clusters_[0] = stream_.multiprocessors;
  for (size_t i = 1; i < kWgmmaSplits.size(); ++i) {
    const WgmmaPlan plan = {.outputs = kWgmmaOutputs.back(), .splits = kWgmmaSplits[i]};
    LaunchSetup setup;
    SetUp(stream_, plan.splits * stream_.multiprocessors, plan, kMaxGroups, &setup);
    const auto kernel = KernelFor(DType::kBF16, plan.outputs);
    if (cudaOccupancyMaxActiveClusters(&clusters_[i], kernel, &setup.config) != cudaSuccess) {
      cudaGetLastError();
      clusters_[i] = 0;
    }
  }
}

CUtensorMap WgmmaProduct::MapOf(const void* data, DType dtype, int64_t rows, int64_t cols,
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

WgmmaPlan WgmmaProduct::Plan(const Call& call) const {
  const bool swiglu = call.swiglu.data != nullptr;
  const int outputs = swiglu ? 2 * call.swiglu.padded_cols : call.w->rows();
  return ChooseWgmmaPlan(outputs, call.w->padded_cols() / kWgmmaStageCols, clusters_, swiglu);
}

void WgmmaProduct::Run(const Call& call, const WgmmaPlan& plan) const {
  const CudaWeight& w = *call.w;
  const bool swiglu = call.swiglu.data != nullptr;
  WgmmaArgs args;
  args.bias = call.bias;
  args.out = call.out.data;
  args.out_stride = call.out.stride;
  args.rows = call.rows;
  args.outputs = swiglu ? call.swiglu.cols : w.rows();
  args.groups = call.rows > kGroupRows ? 2 : 1;
  args.row_tiles = CeilDiv(call.rows, args.groups * kGroupRows);
  args.swiglu = swiglu;
  args.operand = call.swiglu.data;
  args.operand_stride = call.swiglu.stride;
  args.padded_outputs = call.swiglu.padded_cols;
  const int box_rows = swiglu ? plan.outputs / 2 : plan.outputs;
  args.items = args.row_tiles * CeilDiv(swiglu ? args.padded_outputs : args.outputs, box_rows);
  args.stages = w.padded_cols() / kWgmmaStageCols;
  args.splits = plan.splits;
  args.ring = RingStages(plan, args.groups);
  args.prefetch = plan.prefetch;
  args.accumulate = call.accumulate;
  args.aligned = call.out.stride % 4 == 0 && reinterpret_cast<uintptr_t>(call.out.data) % 16 == 0;
  const int blocks =
      plan.splits > 1 ? args.items * plan.splits : std::min(args.items, stream_.multiprocessors);
  LaunchSetup setup;
  SetUp(stream_, blocks, plan, args.groups, &setup);
  const CUtensorMap weights =
      MapOf(w.data(), w.dtype(), w.rows(), w.padded_cols(), w.padded_cols(), box_rows);
  const CUtensorMap x =
      MapOf(call.x, w.dtype(), call.rows, w.padded_cols(), call.x_stride, args.groups * kGroupRows);
  TALON_CUDA_CHECK(
      cudaLaunchKernelEx(&setup.config, KernelFor(w.dtype(), plan.outputs), weights, x, args));
}

}  // namespace talon::cuda
