#include "compute/cpu/matmul/matmul.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "base/contain.h"
#include "base/math.h"
#include "compute/cpu/matmul/memory.h"
#include "compute/cpu/matmul/product/product.h"
#include "compute/cpu/matmul/product/segment_sums.h"
#include "compute/cpu/matmul/quantize.h"

namespace talon {
namespace {

constexpr int kMaxRows = 512;  // bounds the scratch memory
// Weights of a task: worth handing out, a stream to fetch.
constexpr int64_t kMinTaskBytes = 32 << 10;
constexpr int64_t kTasksPerThread = 8;  // where there is enough, so that threads end together
constexpr int64_t kFetchAheadBytes = 4 << 10;  // in panels read once, further than memory is away
constexpr int64_t kInlineWork = 1 << 16;       // multiplications not worth waking a thread for

// Calls f(task, thread) for each task, on this thread alone if the work is small.
template <typename F>
void RunTasks(ThreadPool& pool, int64_t tasks, int64_t work, const F& f) {
  if (work > kInlineWork) {
    pool.Run(tasks, f);
  } else {
    for (int64_t task = 0; task < tasks; ++task) f(task, 0);
  }
}

void ZeroGroups(const InterleavedRow& row, int64_t first, int64_t last) {
  auto* to = static_cast<uint8_t*>(row.to);
  const size_t bytes = row.group * DTypeSize(row.type);
  for (int64_t g = first; g < last; ++g) std::memset(to + g * row.stride, 0, bytes);
}

// One segment of a row, in the groups that the kernel takes.
void PackSegment(const Product& product, const float* from, int row, int segment,
                 InterleavedRow packed) {
  const MatrixKernel& kernel = product.kernel();
  const WeightSegment& part = product.w.segments()[segment];
  const int64_t runs = kernel.group / kernel.x_group;  // runs in a group
  packed.to = static_cast<uint8_t*>(packed.to) + part.first_group * runs * packed.stride;
  from += part.first_col;
  if (product.HasRowScales()) {
    const RowScale scale = kernel.activation_type == DType::kI8
                               ? ChooseInt8Scale(from, DType::kF32, part.cols)
                               : ChooseF16Scale(from, part.cols);
    *product.RowScale(segment, row) = scale.scale;
    packed.inverse_scale = scale.inverse;
  }
  PackRow(from, DType::kF32, part.cols, packed);
  ZeroGroups(packed, CeilDiv(part.cols, kernel.x_group), part.groups * runs);
}

// Row `row` of the product, or zeros behind the last one.
void PackRowOfTile(const Product& product, int row, int thread) {
  const MatrixKernel& kernel = product.kernel();
  const int within = row % kernel.max_rows;
  const int first_row = row - within;
  const int padded = product.PaddedRows(std::min(kernel.max_rows, product.call.x.rows - first_row));
  const int64_t group_bytes = product.RowGroupBytes();
  const InterleavedRow packed = {.to = product.Tile(first_row) + within * group_bytes,
                                 .stride = padded * group_bytes,
                                 .group = kernel.x_group,
                                 .type = kernel.activation_type,
                                 .flip = static_cast<uint8_t>(kernel.offset_activation ? 0x80 : 0)};
  if (row >= product.call.x.rows) {
    ZeroGroups(packed, 0, product.w.groups() * kernel.group / kernel.x_group);
    return;
  }
  const float* from = product.RowOf(row, thread);
  for (int s = 0; s < product.num_segments(); ++s) PackSegment(product, from, row, s, packed);
}

// Rows of a tile share cache lines, so one thread packs all of them, unless groups are lines.
void PackRows(ThreadPool& pool, const Product& product) {
  const int rows = product.PaddedRows(product.call.x.rows);
  const int step = product.RowGroupBytes() < 64 ? product.kernel().max_rows : 1;
  const int64_t elements = int64_t{rows} * product.call.x.cols;
  RunTasks(pool, CeilDiv(rows, step), elements, [&](int64_t task, int thread) {
    const int first = static_cast<int>(task) * step;
    for (int row = first; row < std::min(first + step, rows); ++row) {
      PackRowOfTile(product, row, thread);
    }
  });
}

// The tiles of a task are read side by side, so the same part of each must not lie in the same
// lines of the first-level cache, whose ways are of 4 KB on x86 and of 16 KB on Arm's servers.
int64_t TileStride(int64_t bytes) {
  constexpr int64_t kWay = 4 << 10, kLargeWay = 16 << 10;
  if (bytes < kWay) return RoundUp(bytes, 64);
  const int64_t apart = RoundUp(bytes, kWay) + kWay / 8;
  return apart % kLargeWay < kWay ? apart + kWay : apart;
}

// A run of groups of one panel.
struct Slice {
  const uint8_t* panel = nullptr;  // at first_group
  int64_t first_group = 0, groups = 0;
  const uint8_t* next = nullptr;  // what to fetch meanwhile, as long as the slice; `panel`: nothing
  bool fresh = false;             // the first of its sums
};

// The weights of `panel` from `group` on.
const uint8_t* PanelAt(const Product& product, int64_t panel, int64_t group) {
  return product.w.panel(panel) + group * product.kernel().panel_group_bytes;
}

// The part's tiles by one slice of a panel, fetching the slice `next` meanwhile (its length divided
// among the block's tiles). `acc`: the first tile's accumulators; `acc_step`: from tile to tile.
void MultiplySlice(const Product& product, const Block& block, const BlockPart& part,
                   const Slice& slice, uint32_t* acc, int64_t acc_step) {
  const MatrixKernel& kernel = product.kernel();
  const int64_t row_group = kernel.group * DTypeSize(kernel.activation_type);
  const int64_t step = slice.next == slice.panel ? 0 : kernel.panel_group_bytes / block.tiles;
  for (int64_t t = 0; t < part.tiles; ++t) {
    const int64_t tile = part.first_tile + t;
    const int row = static_cast<int>(tile) * kernel.max_rows;
    const int rows = product.PaddedRows(std::min(kernel.max_rows, block.rows - row));
    kernel.tile({.x = product.Tile(block.first_row + row) + slice.first_group * rows * row_group,
                 .panel = slice.panel,
                 .groups = slice.groups,
                 .rows = rows,
                 .single = block.rows - row == 1,
                 .next = slice.next + tile * slice.groups * step,
                 .next_step = step,
                 .acc = acc + t * acc_step,
                 .fresh = slice.fresh});
  }
}

// Few rows are bound by memory alone: they read the panels from end to end, as they lie. More rows
// stay at a slice and fetch the next meanwhile.
bool IsFew(const Product& product, const Block& block) {
  return 2 * block.rows <= product.kernel().max_rows;
}

// One segment of few rows: `panel` is the p-th of the block.
void MultiplyStreamed(const Product& product, const Block& block, int64_t p,
                      const WeightSegment& segment, uint32_t* acc) {
  const uint8_t* panel = PanelAt(product, block.PanelOf(p), segment.first_group);
  MultiplySlice(product, block, block.Whole(),
                {.panel = panel,
                 .first_group = segment.first_group,
                 .groups = segment.groups,
                 .next = panel + kStreamAheadBytes,
                 .fresh = true},
                acc, /*acc_step=*/0);
}

// One segment of a part, in slices. `acc`: int32 or float accumulators of the part,
// [tiles][panels][max_rows * width].
void MultiplyPart(const Product& product, const Block& block, const BlockPart& part,
                  const WeightSegment& segment, uint32_t* acc) {
  const MatrixKernel& kernel = product.kernel();
  const int64_t end = segment.first_group + segment.groups;
  const int64_t tile_sums = int64_t{kernel.max_rows} * kernel.width;
  const bool whole = product.IsSlice(segment);
  const int64_t step = whole ? segment.groups : product.SliceGroups();
  const int64_t ahead = std::max(kFetchAheadBytes, static_cast<int64_t>(product.w.panel_bytes()));
  for (int64_t g = segment.first_group; g < end; g += step) {
    for (int64_t i = 0; i < part.panels; ++i) {
      const int64_t p = part.first_panel + i;
      Slice slice = {.panel = PanelAt(product, block.PanelOf(p), g),
                     .first_group = g,
                     .groups = std::min(step, end - g),
                     .fresh = g == segment.first_group};
      slice.next = whole ? slice.panel + ahead
                   : p + 1 < block.panels
                       ? PanelAt(product, block.PanelOf(p + 1), g)
                       : PanelAt(product, block.PanelOf(0), std::min(g + step, end));
      MultiplySlice(product, block, part, slice, acc + i * tile_sums, part.panels * tile_sums);
    }
  }
}

// One segment of the block. Sums of large tiles are added while they are in the first-level cache,
// those of small ones all together.
void MultiplySegment(const Product& product, const Block& block, const WeightSegment& segment,
                     uint32_t* acc, SegmentSums* sums) {
  BlockPart part = block.Whole();
  if (product.kernel().large_tiles) {
    part.panels = 1;
    if (product.IsSlice(segment)) part.tiles = 1;  // else tiles share slices
  }
  for (part.first_panel = 0; part.first_panel < block.panels; part.first_panel += part.panels) {
    for (part.first_tile = 0; part.first_tile < block.tiles; part.first_tile += part.tiles) {
      MultiplyPart(product, block, part, segment, acc);
      sums->Add(part, acc);
    }
  }
  sums->EndSegment();
}

Block BlockOf(const Product& product, int64_t row_block, int64_t output_block) {
  const MatrixKernel& kernel = product.kernel();
  Block block;
  block.first_row = static_cast<int>(row_block) * kRowsPerBlock;
  block.rows = std::min(kRowsPerBlock, product.call.x.rows - block.first_row);
  block.first_output = static_cast<int>(output_block) * product.outputs_per_task;
  block.outputs = std::min(product.outputs_per_task, product.half_outputs() - block.first_output);
  block.tiles = CeilDiv(block.rows, kernel.max_rows);
  block.gate_panels = CeilDiv(block.outputs, kernel.width);
  block.panels = product.halves() * block.gate_panels;
  block.first_panel = block.first_output / kernel.width;
  block.first_up_panel = (block.first_output + product.half_outputs()) / kernel.width;
  return block;
}

// Few rows: all segments of a panel, then those of the next, so that it is one stream.
void RunStreamedBlock(const Product& product, const Block& block, int64_t sums, uint32_t* acc) {
  const auto& segments = product.w.segments();
  const int64_t tile_sums = sums / block.panels;
  if (!product.kernel().large_tiles) {
    std::memset(acc, 0, segments.size() * sums * sizeof(uint32_t));
  }
  for (int64_t p = 0; p < block.panels; ++p) {
    for (size_t s = 0; s < segments.size(); ++s) {
      MultiplyStreamed(product, block, p, segments[s], acc + s * sums + p * tile_sums);
    }
  }
  SegmentSums segment_sums(product, block);
  for (size_t s = 0; s < segments.size(); ++s) {
    segment_sums.Add(block.Whole(), acc + s * sums);
    segment_sums.EndSegment();
  }
}

void RunBlock(const Product& product, const Block& block) {
  const MatrixKernel& kernel = product.kernel();
  alignas(64) uint32_t acc[kBlockSums];
  const int64_t sums = block.tiles * block.panels * kernel.max_rows * kernel.width;
  if (IsFew(product, block) && product.num_segments() * sums <= kBlockSums) {
    return RunStreamedBlock(product, block, sums, acc);
  }
  SegmentSums segment_sums(product, block);
  for (const WeightSegment& segment : product.w.segments()) {
    if (!kernel.large_tiles) std::memset(acc, 0, sums * sizeof(uint32_t));
    MultiplySegment(product, block, segment, acc, &segment_sums);
  }
}

// One block of outputs by one part of the rows. Neighbouring tasks share weights.
void RunTask(const Product& product, int64_t task) {
  const MatrixKernel& kernel = product.kernel();
  const int64_t part = task % product.row_parts;
  const int64_t outputs =
      TaskInStretches(task / product.row_parts, product.output_blocks, product.threads);
  if (kernel.begin != nullptr) kernel.begin();
  for (int64_t row_block = product.FirstRowBlock(part); row_block < product.FirstRowBlock(part + 1);
       ++row_block) {
    RunBlock(product, BlockOf(product, row_block, outputs));
  }
  if (kernel.end != nullptr) kernel.end();
}

// Makes enough tasks to keep all threads busy, none too small, none with more outputs than its
// accumulators have room for.
void PlanTasks(int threads, Product* product) {
  const int width = product->kernel().width;
  product->threads = threads;
  const int64_t panels = product->w.panels() / product->halves();
  const int64_t bytes = product->w.panels() * static_cast<int64_t>(product->w.panel_bytes());
  const int64_t most_panels = kMaxOutputsPerTask / width / product->halves();
  product->row_blocks = CeilDiv(product->call.x.rows, kRowsPerBlock);
  int64_t tasks =
      std::min(kTasksPerThread * threads / product->row_blocks + 1, bytes / kMinTaskBytes);
  tasks = std::max(tasks, CeilDiv(panels, most_panels));
  tasks = RoundUp(tasks, threads);
  const int64_t panels_per_task = CeilDiv(panels, tasks);
  product->outputs_per_task = static_cast<int>(panels_per_task) * width;
  product->output_blocks = CeilDiv(panels, panels_per_task);
  product->row_parts = product->row_blocks;
  if (product->kernel().large_tiles) {
    const int64_t parts = CeilDiv(kTasksPerThread / 2 * threads, product->output_blocks);
    product->row_parts = std::min(product->row_parts, parts);
  }
}

void RunRows(ThreadPool& pool, const ProductCall& call, MatMulScratch* scratch) {
  Product product = {.call = call, .w = *call.w};
  const MatrixKernel& kernel = product.kernel();
  const int rows = call.x.rows;
  product.tile_bytes = TileStride(kernel.max_rows * product.w.groups() * kernel.group *
                                  static_cast<int64_t>(DTypeSize(kernel.activation_type)));
  product.packed = scratch->Activations(CeilDiv(rows, kernel.max_rows) * product.tile_bytes);
  product.row_scales = scratch->RowScales(rows * product.num_segments());
  if (call.norm != nullptr) {
    product.normed = scratch->ThreadRows(pool.num_threads(), call.x.cols);
  }
  PackRows(pool, product);
  PlanTasks(pool.num_threads(), &product);
  const int64_t work = int64_t{rows} * call.x.cols * product.w.rows();
  RunTasks(pool, product.row_parts * product.output_blocks, work,
           [&](int64_t task, int) { RunTask(product, task); });
}

uint8_t* Grow(size_t bytes, Buffer* buffer) {
  if (buffer->bytes() < bytes) {
    *buffer = {};  // first, so that old and new do not add up
    *buffer = MemoryOrThrow(AllocateStreamed(bytes));
  }
  return static_cast<uint8_t*>(buffer->data());
}

}  // namespace

uint8_t* MatMulScratch::Activations(size_t bytes) { return Grow(bytes, &activations_); }

float* MatMulScratch::ThreadRows(int threads, int cols) {
  const size_t bytes = threads * ThreadRowSize(cols) * sizeof(float);
  return reinterpret_cast<float*>(Grow(bytes, &thread_rows_));
}

float* MatMulScratch::RowScales(int rows) {
  if (row_scales_.size() < static_cast<size_t>(rows)) row_scales_.resize(rows);
  return row_scales_.data();
}

bool CanGate(const PackedWeight& w) { return w.rows() % (2 * w.kernel().width) == 0; }

void RunProduct(ThreadPool& pool, const ProductCall& call, MatMulScratch* scratch) {
  const MatrixView& x = call.x;
  const PackedWeight& w = *call.w;
  const bool gated = call.epilogue == Epilogue::kSwiGlu;
  TALON_CHECK(x.cols == w.cols() && call.out.cols == w.rows() / (gated ? 2 : 1) &&
                  call.out.rows == x.rows && (!gated || CanGate(w)),
              "matmul: [{}, {}] by [{}, {}] into [{}, {}]", x.rows, x.cols, w.rows(), w.cols(),
              call.out.rows, call.out.cols);
  for (int row = 0; row < x.rows; row += kMaxRows) {
    const int rows = std::min(kMaxRows, x.rows - row);
    ProductCall part = call;
    part.x = x.Rows(row, rows);
    part.out = call.out.Rows(row, rows);
    RunRows(pool, part, scratch);
  }
}

std::string MatMulKernelNames() {
  std::string names;
  std::string_view last;  // instruction
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI4}) {
    const std::string_view name = AttainableKernels(type)[0]->name;  // "int8 smmla"
    const std::string_view instruction = name.substr(name.find(' '));
    if (instruction == last) {
      names.insert(names.size() - last.size(), fmt::format("/{}", name.substr(0, name.find(' '))));
      continue;
    }
    if (!names.empty()) names += ", ";
    names += name;
    last = instruction;
  }
  return names;
}

}  // namespace talon
