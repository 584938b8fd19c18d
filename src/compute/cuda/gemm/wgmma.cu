#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/cuda/gemm/wgmma.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/tensor_map.h"

namespace talon::cuda {
namespace {

// Dynamic shared memory that a block may use besides its static mbarriers.
constexpr int kMaxSharedBytes = 226 << 10;

WgmmaKernels KernelsFor(const WgmmaWeight& w) {
  if (w.dtype == DType::kF16) return WgmmaKernelsF16();
  if (w.dtype == DType::kBF16) return WgmmaKernelsBF16();
  return w.group_scales != nullptr ? WgmmaKernelsFp8Groups() : WgmmaKernelsFp8();
}

WgmmaFunction KernelFor(const WgmmaWeight& w, const WgmmaPlan& plan) {
  const WgmmaKernels kernels = KernelsFor(w);
  if (plan.segments > 1 && !plan.splits) {
    TALON_CHECK(plan.outputs == kSegmentedOutputs);
    return kernels.segmented;
  }
  const auto found = std::ranges::find(kernels.outputs, plan.outputs);
  TALON_CHECK(found != kernels.outputs.end(), "no tile of {} outputs", plan.outputs);
  return kernels.functions[found - kernels.outputs.begin()];
}

// Without sm_90a in the build or the device the kernel is empty or missing; the real kernel has 128
// accumulators in registers.
bool IsCompiledIn() {
  cudaFuncAttributes attributes;
  const auto error = cudaFuncGetAttributes(&attributes, WgmmaKernelsBF16().functions.back());
  if (error != cudaSuccess) cudaGetLastError();  // clears the error for the next call
  return error == cudaSuccess && attributes.numRegs >= kWgmmaOutputs.back() / 2;
}

int SlicesOf(const WgmmaWeight& w) {
  return w.padded_cols / (kSliceRowBytes / static_cast<int>(DTypeSize(w.dtype)));
}

static_assert(kSliceRowBytes == kMapSliceBytes);
CUtensorMap MapOf(const SlicedMatrix& matrix) {
  CUtensorMap map;
  TALON_CHECK(MakeTensorMap(matrix, &map),
              "cuda: no tensor map of {} x {} slices, stride {}, box {} x {}", matrix.rows,
              matrix.slices, matrix.stride, matrix.box_rows, matrix.box_slices);
  return map;
}

}  // namespace

Result<std::unique_ptr<WgmmaGemm>> WgmmaGemm::Create(const Stream& stream) {
  if (!HasTensorMaps() || !IsCompiledIn()) return std::unique_ptr<WgmmaGemm>();
  for (const WgmmaKernels& kernels :
       {WgmmaKernelsBF16(), WgmmaKernelsF16(), WgmmaKernelsFp8(), WgmmaKernelsFp8Groups()}) {
    for (const WgmmaFunction kernel : kernels.functions) AllowSharedMemory(kernel, kMaxSharedBytes);
    AllowSharedMemory(kernels.segmented, kMaxSharedBytes);
  }
  std::unique_ptr<WgmmaGemm> gemm(new WgmmaGemm(stream));
  constexpr size_t kRows = kMaxGroups * kGroupRows;
  const size_t accumulators = kRows * kWgmmaOutputs.back() * stream.multiprocessors;
  TALON_ASSIGN_OR_RETURN(gemm->partials_, AllocateDevice(stream, accumulators * sizeof(float)));
  const size_t arrivals = stream.multiprocessors * sizeof(int32_t);
  TALON_ASSIGN_OR_RETURN(gemm->arrivals_, AllocateDevice(stream, arrivals));
  return std::move(gemm);
}

int WgmmaGemm::SegmentsOf(const Call& call) const {
  return ChooseSegments({.outputs = call.w.whole_rows,
                         .slices = SlicesOf(call.w),
                         .halves = call.gates,
                         .tiles = KernelsFor(call.w).outputs},
                        stream_.all_multiprocessors);
}

WgmmaPlan WgmmaGemm::Plan(const Call& call) const {
  const bool rounds = call.swiglu.dtype == DType::kF8E4M3;
  return ChooseWgmmaPlan({.outputs = call.w.rows,
                          .slices = SlicesOf(call.w),
                          .halves = call.swiglu.data != nullptr,
                          .tiles = rounds ? kRoundingOutputs : KernelsFor(call.w).outputs},
                         SegmentsOf(call), call.rows, stream_.multiprocessors);
}

bool WgmmaGemm::CanRoundSwiGlu(const WgmmaWeight& w) const {
  return w.dtype == DType::kF8E4M3 && w.group_scales == nullptr &&
         SegmentsOf({.w = w, .gates = true}) == 1;
}

WgmmaArgs WgmmaGemm::ArgsOf(const Call& call, const WgmmaPlan& plan) const {
  const WgmmaWeight& w = call.w;
  const bool swiglu = call.swiglu.data != nullptr;
  WgmmaArgs args;
  (w.dtype == DType::kF8E4M3 ? args.segment_scales : args.scales) = w.scales;
  args.row_scales = call.x_scales;
  args.row_stride = call.x_scale_stride;
  args.group_scales = w.group_scales;
  args.group_stride = w.group_stride;
  args.bias = call.bias;
  args.out = call.out.data;
  args.out_stride = call.out.stride;
  args.rows = call.rows;
  args.outputs = swiglu ? call.swiglu.cols : w.rows;
  args.groups = call.rows > kGroupRows ? 2 : 1;
  args.stage_rows = StageRows(call.rows, args.groups);
  args.row_tiles = CeilDiv(call.rows, args.groups * kGroupRows);
  args.swiglu = swiglu;
  args.operand = call.swiglu.data;
  args.operand_stride = call.swiglu.stride;
  args.operand_scales = call.swiglu.scales;
  args.operand_scale_stride = call.swiglu.scale_stride;
  args.padded_outputs = call.swiglu.padded_cols;
  const int box_outputs = swiglu ? plan.outputs / 2 : plan.outputs;
  args.items = args.row_tiles * CeilDiv(swiglu ? args.padded_outputs : args.outputs, box_outputs);
  args.slices = SlicesOf(w);
  const int scales = w.dtype != DType::kF8E4M3   ? 0
                     : w.group_scales == nullptr ? args.stage_rows
                                                 : args.stage_rows + plan.outputs;
  args.stage_slices = StageSlices(plan, args.slices, args.stage_rows, scales);
  args.stage_bytes = StageBytes(plan.outputs, args.stage_rows, args.stage_slices, scales);
  args.segments = plan.segments;
  args.splits = plan.splits ? plan.segments : 1;
  args.ring = RingStages(plan, args.stage_bytes);
  args.partials = partials();
  args.arrivals = arrivals();
  args.constant_weights = w.constant;
  args.up_offset = w.up_offset;
  args.accumulate = call.accumulate;
  args.aligned = call.out.stride % 4 == 0 && reinterpret_cast<uintptr_t>(call.out.data) % 16 == 0;
  return args;
}

void WgmmaGemm::Run(const Call& call, const WgmmaPlan& plan) const {
  const WgmmaWeight& w = call.w;
  const WgmmaArgs args = ArgsOf(call, plan);
  TALON_CHECK(args.ring >= 2, "a stage is released when the next one is there");
  TALON_CHECK(args.splits == 1 ||
              (args.row_tiles == 1 && args.items * args.splits <= stream_.multiprocessors));
  const int blocks = std::min(args.items * args.splits, stream_.multiprocessors);
  const bool fp8 = w.dtype == DType::kF8E4M3;
  const CUtensorMap weights = MapOf({.data = w.data,
                                     .dtype = w.dtype,
                                     .rows = args.outputs,
                                     .parts = args.swiglu ? 2 : 1,
                                     .slices = args.slices,
                                     .stride = fp8 ? kFp8SliceCols : w.padded_cols,
                                     .slice_stride = fp8 ? int64_t{w.rows} * kFp8SliceCols : 0,
                                     .box_rows = args.swiglu ? plan.outputs / 2 : plan.outputs,
                                     .box_slices = args.stage_slices});
  const CUtensorMap x = MapOf({.data = call.x,
                               .dtype = w.dtype,
                               .rows = call.rows,
                               .slices = args.slices,
                               .stride = call.x_stride,
                               .box_rows = args.stage_rows,
                               .box_slices = args.stage_slices});
  const int threads = args.groups * 128 + ProducerThreads(fp8);
  cuda::Launch(stream_, KernelFor(w, plan), blocks, threads,
               WgmmaSharedBytes(plan, args.stage_bytes), weights, x, args);
}

}  // namespace talon::cuda
