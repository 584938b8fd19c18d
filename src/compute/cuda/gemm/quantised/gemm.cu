#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/cuda/gemm/quantised/gemm.h"
#include "compute/cuda/gemm/quantised/pack.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/tensor_map.h"

namespace talon::cuda {
namespace {

constexpr int kMaxSharedBytes = 226 << 10;
// From how many rows on expanding a weight is quicker than reading its codes again for others.
constexpr int kManyRows = 256;
constexpr size_t kExpandedBytes = 128 << 20;
constexpr int kPiece = 256;  // outputs that are expanded at once, or a multiple of them

const CodeKernels& KernelsFor(const CudaWeight& w) {
  if (w.dtype() == DType::kI8) return CodeKernelsInt8();
  return w.dtype() == DType::kI4 ? CodeKernelsInt4(w.code_tiles()) : CodeKernelsFp8(w.code_tiles());
}

CodeFunction KernelFor(const CudaWeight& w, int row_tile) {
  const auto found = std::ranges::find(kCodeRowTiles, row_tile);
  TALON_CHECK(found != kCodeRowTiles.end(), "no tile of {} rows", row_tile);
  return KernelsFor(w)[found - kCodeRowTiles.begin()];
}

}  // namespace

Status CodeGemm::Reserve(const CudaWeight& w) {
  for (const CodeFunction kernel : KernelsFor(w)) AllowSharedMemory(kernel, kMaxSharedBytes);
  const size_t row_bytes = size_t{2} * w.padded_cols();
  const size_t whole = RoundUp(w.rows(), kPiece) * row_bytes;
  const size_t least = 2 * kPiece * row_bytes;  // both halves of SwiGLU
  const size_t bytes = std::max(std::min(kExpandedBytes, whole), least);
  if (expanded_.bytes() >= bytes) return OkStatus();
  TALON_ASSIGN_OR_RETURN(expanded_, AllocateDevice(stream_, bytes));
  return OkStatus();
}

void CodeGemm::Run(const CudaWeight& w, const WgmmaGemm::Call& call) const {
  WgmmaGemm::Call whole = call;
  whole.w = {.rows = w.rows(),
             .whole_rows = w.whole_rows(),
             .padded_cols = w.padded_cols(),
             .scales = w.scales(),
             .up_offset = call.swiglu.cols,
             .constant = false};
  const WgmmaPlan plan = wgmma_->Plan(whole);
  if (call.rows > kManyRows) return RunExpanded(w, whole, plan);
  const CodePlan codes =
      ChooseCodePlan(w.code_tiles(), w.rows(), w.code_cols(), plan.segments, call.rows,
                     stream_.multiprocessors, call.swiglu.data != nullptr);
  // A rank's share of a GPU may be too small for all blocks of a tile.
  if (codes.groups == 0) return RunExpanded(w, whole, plan);
  TALON_CHECK(codes.ring >= 2, "no plan for {} x {}", w.rows(), w.cols());
  for (int first = 0; first < call.rows; first += codes.row_tile) {
    WgmmaGemm::Call some = whole;
    some.rows = std::min(codes.row_tile, call.rows - first);
    some.x = static_cast<const uint8_t*>(call.x) + first * call.x_stride * 2;
    some.out.data += first * call.out.stride;
    if (call.swiglu.data != nullptr) {
      some.swiglu.data = static_cast<uint8_t*>(call.swiglu.data) + first * call.swiglu.stride * 2;
    }
    RunCodes(w, some, codes);
  }
}

void CodeGemm::RunCodes(const CudaWeight& w, const WgmmaGemm::Call& call,
                        const CodePlan& plan) const {
  const bool swiglu = call.swiglu.data != nullptr;
  TALON_CHECK(!swiglu || (CanGate(w) && call.swiglu.padded_cols == call.swiglu.cols));
  CodeArgs args;
  WgmmaArgs& common = args.common;
  common.scales = call.w.scales;
  common.bias = call.bias;
  common.out = call.out.data;
  common.out_stride = call.out.stride;
  common.rows = call.rows;
  common.outputs = swiglu ? call.swiglu.cols : w.rows();
  common.groups = plan.groups;
  common.row_tiles = 1;
  const int tile_outputs = plan.groups * kCodeTileRows / (swiglu ? 2 : 1);
  common.items = CeilDiv(common.outputs, tile_outputs);
  common.slices = w.padded_cols() / kWgmmaSliceCols;
  common.stage_slices = 2 * plan.stage_tiles;
  common.stage_bytes = plan.stage_bytes;
  common.segments = plan.segments;
  common.splits = plan.segments;
  common.ring = plan.ring;
  common.partials = wgmma_->partials();
  common.arrivals = wgmma_->arrivals();
  common.accumulate = call.accumulate;
  common.aligned = call.out.stride % 4 == 0 && reinterpret_cast<uintptr_t>(call.out.data) % 16 == 0;
  common.swiglu = swiglu;
  common.up_offset = call.w.up_offset;
  common.operand = call.swiglu.data;
  common.operand_stride = call.swiglu.stride;
  common.padded_outputs = call.swiglu.padded_cols;
  args.codes = static_cast<const uint8_t*>(w.data());
  args.tile_bytes = w.code_tiles().bytes();
  args.col_tiles = w.code_cols();
  args.stage_tiles = plan.stage_tiles;
  args.up_tile = common.outputs / kCodeTileRows;
  CUtensorMap x;
  TALON_CHECK(MakeTensorMap(SlicedMatrix{.data = call.x,
                                         .dtype = DType::kBF16,
                                         .rows = call.rows,
                                         .slices = common.slices,
                                         .stride = call.x_stride,
                                         .box_rows = plan.row_tile,
                                         .box_slices = common.stage_slices},
                            &x),
              "cuda: no tensor map of {} rows", call.rows);
  const int blocks = std::min(common.items * common.splits, stream_.multiprocessors);
  Launch(stream_, KernelFor(w, plan.row_tile), blocks, plan.groups * 128 + 32,
         plan.ring * plan.stage_bytes + kRingAlignment, x, args);
}

void CodeGemm::RunExpanded(const CudaWeight& w, WgmmaGemm::Call call, const WgmmaPlan& plan) const {
  const bool swiglu = call.swiglu.data != nullptr;
  const int halves = swiglu ? 2 : 1;
  const int outputs = w.rows() / halves;
  const size_t row_bytes = size_t{2} * w.padded_cols();
  const auto most = static_cast<int>(expanded_.bytes() / (halves * row_bytes)) / kPiece * kPiece;
  TALON_CHECK(most > 0, "{} inputs", w.cols());
  const int step = RoundUp(CeilDiv(outputs, CeilDiv(outputs, most)), kPiece);
  const WgmmaGemm::Call whole = call;
  for (int first = 0; first < outputs; first += step) {
    const int count = std::min(step, outputs - first);
    auto* expanded = static_cast<uint8_t*>(expanded_.data());
    for (int half = 0; half < halves; ++half) {
      ExpandCodes(stream_, w, half * outputs + first, count, expanded + half * count * row_bytes);
    }
    call.w.data = expanded;
    call.w.rows = halves * count;
    if (call.w.scales != nullptr) call.w.scales = whole.w.scales + first;
    if (call.bias != nullptr) call.bias = whole.bias + first;
    if (swiglu) {
      call.swiglu.data = static_cast<uint8_t*>(whole.swiglu.data) + first * 2;
      call.swiglu.cols = count;
      call.swiglu.padded_cols = first + count < outputs ? count : whole.swiglu.padded_cols - first;
    } else {
      call.out = whole.out.Cols(first, count);
    }
    wgmma_->Run(call, plan);
  }
}

}  // namespace talon::cuda
