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

static_assert(kWgmmaSliceCols == kSliceCols);
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
  for (const WgmmaKernels* kernels : {&WgmmaKernelsBF16(), &WgmmaKernelsF16()}) {
    for (const WgmmaFunction kernel : kernels->tiles) AllowSharedMemory(kernel, kMaxSharedBytes);
    AllowSharedMemory(kernels->segmented, kMaxSharedBytes);
  }
  std::unique_ptr<WgmmaGemm> gemm(new WgmmaGemm(stream));
  constexpr size_t kRows = kMaxGroups * kGroupRows;
  const size_t accumulators = kRows * kWgmmaOutputs.back() * stream.multiprocessors;
  TALON_ASSIGN_OR_RETURN(gemm->partials_, AllocateDevice(stream, accumulators * sizeof(float)));
  const size_t arrivals = stream.multiprocessors * sizeof(int32_t);
  TALON_ASSIGN_OR_RETURN(gemm->arrivals_, AllocateDevice(stream, arrivals));
  return std::move(gemm);
}

WgmmaPlan WgmmaGemm::Plan(const Call& call) const {
  const int slices = call.w.padded_cols / kWgmmaSliceCols;
  const int segments =
      ChooseSegments(call.w.whole_rows, slices, stream_.all_multiprocessors, call.gates);
  return ChooseWgmmaPlan(call.w.rows, slices, segments, call.rows, stream_.multiprocessors,
                         call.swiglu.data != nullptr);
}

void WgmmaGemm::Run(const Call& call, const WgmmaPlan& plan) const {
  const WgmmaWeight& w = call.w;
  const bool swiglu = call.swiglu.data != nullptr;
  WgmmaArgs args;
  args.scales = w.scales;
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
  args.padded_outputs = call.swiglu.padded_cols;
  const int box_outputs = swiglu ? plan.outputs / 2 : plan.outputs;
  args.items = args.row_tiles * CeilDiv(swiglu ? args.padded_outputs : args.outputs, box_outputs);
  args.slices = w.padded_cols / kWgmmaSliceCols;
  args.stage_slices = StageSlices(plan, args.slices, args.stage_rows);
  args.stage_bytes = StageBytes(plan.outputs, args.stage_rows, args.stage_slices);
  args.segments = plan.segments;
  args.splits = plan.splits ? plan.segments : 1;
  args.ring = RingStages(plan, args.stage_bytes);
  TALON_CHECK(args.ring >= 2, "a stage is released when the next one is there");
  args.partials = partials();
  args.arrivals = arrivals();
  args.constant_weights = w.constant;
  args.up_offset = w.up_offset;
  args.accumulate = call.accumulate;
  args.aligned = call.out.stride % 4 == 0 && reinterpret_cast<uintptr_t>(call.out.data) % 16 == 0;
  TALON_CHECK(args.splits == 1 ||
              (args.row_tiles == 1 && args.items * args.splits <= stream_.multiprocessors));
  const int blocks = std::min(args.items * args.splits, stream_.multiprocessors);
  const CUtensorMap weights = MapOf({.data = w.data,
                                     .dtype = w.dtype,
                                     .rows = args.outputs,
                                     .parts = swiglu ? 2 : 1,
                                     .slices = args.slices,
                                     .stride = w.padded_cols,
                                     .box_rows = box_outputs,
                                     .box_slices = args.stage_slices});
  const CUtensorMap x = MapOf({.data = call.x,
                               .dtype = w.dtype,
                               .rows = call.rows,
                               .slices = args.slices,
                               .stride = call.x_stride,
                               .box_rows = args.stage_rows,
                               .box_slices = args.stage_slices});
  cuda::Launch(stream_, KernelFor(w.dtype, plan), blocks, args.groups * 128 + 32,
               WgmmaSharedBytes(plan, args.stage_bytes), weights, x, args);
}

}  // namespace talon::cuda
