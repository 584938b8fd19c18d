#include "compute/cpu/matmul/matmul.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "compute/cpu/elementwise.h"
#include "compute/cpu/matmul/memory.h"
#include "compute/cpu/matmul/quantize.h"

namespace talon {
namespace {

constexpr int kMaxRows = 512;                // bounds the scratch memory
constexpr int kRowsPerTask = 64;             // a multiple of every kernel's max_rows
constexpr int kMaxOutputsPerTask = 128;      // a multiple of every kernel's width
constexpr int64_t kMinTaskBytes = 32 << 10;  // of weights: worth handing out, a stream to fetch
constexpr int64_t kTasksPerThread = 8;       // where there is enough, so that threads end together
constexpr int64_t kPanelSliceBytes = 16 << 10;  // stays in the first-level cache for all tiles
constexpr int64_t kFetchAheadBytes = 4 << 10;   // in a stream, further than memory is away
constexpr int64_t kInlineWork = 1 << 16;        // multiplications not worth waking a thread for

// Floats from a thread's row to the next one's: whole cache lines.
int64_t ThreadRowSize(int cols) { return (int64_t{cols} + 15) / 16 * 16; }

// The part of one task: `outputs` from `first_output` on and, in gated products, as many of up.
struct Block {
  int first_row, rows;
  int first_output, outputs;  // outputs: valid ones, the last panel may hold fewer than its width
  // The same in tiles and panels.
  int64_t tiles;
  int64_t panels;       // up's included
  int64_t gate_panels;  // the first ones
  int64_t first_panel, first_up_panel;

  // The weights' panel that is the block's p-th.
  int64_t PanelOf(int64_t p) const {
    return p < gate_panels ? first_panel + p : first_up_panel + p - gate_panels;
  }
};

// A run of groups of one panel.
struct Slice {
  const uint8_t* panel = nullptr;  // at first_group
  int64_t first_group = 0, groups = 0;
  const uint8_t* next = nullptr;  // what to fetch meanwhile, as long as the slice; `panel`: nothing
};

// At most kMaxRows rows: everything the tasks share.
struct Product {
  ProductCall call;
  const PackedWeight& w;

  uint8_t* packed = nullptr;  // tiles of activations, as TileArgs has them
  int64_t row_bytes = 0;      // of one packed row
  float* row_scales = nullptr;
  float* normed = nullptr;  // a row for each thread

  int outputs_per_task = 0;
  int64_t row_blocks = 0;
  int64_t output_blocks = 0;
  int threads = 1;

  const MatrixKernel& kernel() const { return w.kernel(); }
  bool HasRowScales() const {
    return kernel().activation_type == DType::kI8 || kernel().activation_type == DType::kF16;
  }
  int PaddedRows(int rows) const {
    const int unit = kernel().row_unit;
    return (rows + unit - 1) / unit * unit;
  }
  int halves() const { return call.epilogue == Epilogue::kSwiGlu ? 2 : 1; }
  // Distance from an output of gate to the same one of up.
  int half_outputs() const { return w.rows() / halves(); }
  int64_t SliceGroups() const {
    return std::max<int64_t>(1, kPanelSliceBytes / kernel().panel_group_bytes);
  }
  // A row of the left operand, after the norm if there is one.
  const float* RowOf(int row, int thread) const {
    const float* x = call.x.data + row * call.x.stride;
    if (call.norm == nullptr) return x;
    float* to = normed + thread * ThreadRowSize(call.x.cols);
    RmsNormRow(x, call.x.cols, call.norm, call.epsilon, to);
    return to;
  }
  // Tiles before the last are full, so a tile starts where its rows would.
  const uint8_t* Tile(int first_row) const { return packed + first_row * row_bytes; }
};

void ZeroGroups(const InterleavedRow& row, int64_t first, int64_t last) {
  auto* to = static_cast<uint8_t*>(row.to);
  const size_t bytes = row.group * DTypeSize(row.type);
  for (int64_t g = first; g < last; ++g) std::memset(to + g * row.stride, 0, bytes);
}

void PackTile(const Product& product, int first_row, int thread) {
  const MatrixKernel& kernel = product.kernel();
  const MatrixView& x = product.call.x;
  const int rows = std::min(kernel.max_rows, x.rows - first_row);
  const int padded = product.PaddedRows(rows);
  const size_t group_bytes = kernel.x_group * DTypeSize(kernel.activation_type);
  const int64_t groups = product.w.groups() * kernel.group / kernel.x_group;
  const int64_t filled = (x.cols + kernel.x_group - 1) / kernel.x_group;
  uint8_t* tile = product.packed + first_row * product.row_bytes;
  for (int r = 0; r < padded; ++r) {
    InterleavedRow row = {.to = tile + r * group_bytes,
                          .stride = static_cast<int64_t>(padded * group_bytes),
                          .group = kernel.x_group,
                          .type = kernel.activation_type,
                          .flip = static_cast<uint8_t>(kernel.offset_activation ? 0x80 : 0)};
    if (r >= rows) {
      ZeroGroups(row, 0, groups);
      continue;
    }
    const float* from = product.RowOf(first_row + r, thread);
    if (product.HasRowScales()) {
      const RowScale scale = kernel.activation_type == DType::kI8
                                 ? ChooseInt8Scale(from, DType::kF32, x.cols)
                                 : ChooseF16Scale(from, x.cols);
      product.row_scales[first_row + r] = scale.scale;
      row.inverse_scale = scale.inverse;
    }
    PackRow(from, DType::kF32, x.cols, row);
    ZeroGroups(row, filled, groups);
  }
}

// The weights of `panel` from `group` on.
const uint8_t* PanelAt(const Product& product, int64_t panel, int64_t group) {
  return product.w.panel(panel) + group * product.kernel().panel_group_bytes;
}

// All tiles of the block by one slice of a panel, fetching the slice `next` meanwhile (its length
// divided among the tiles). `acc`: the first tile's accumulators; `acc_step`: from tile to tile.
void MultiplySlice(const Product& product, const Block& block, const Slice& slice, uint32_t* acc,
                   int64_t acc_step) {
  const MatrixKernel& kernel = product.kernel();
  const int64_t row_group = kernel.group * DTypeSize(kernel.activation_type);
  const int64_t step = slice.next == slice.panel ? 0 : kernel.panel_group_bytes / block.tiles;
  for (int64_t tile = 0; tile < block.tiles; ++tile) {
    const int row = static_cast<int>(tile) * kernel.max_rows;
    const int rows = product.PaddedRows(std::min(kernel.max_rows, block.rows - row));
    kernel.tile({.x = product.Tile(block.first_row + row) + slice.first_group * rows * row_group,
                 .panel = slice.panel,
                 .groups = slice.groups,
                 .rows = rows,
                 .next = slice.next + tile * slice.groups * step,
                 .next_step = step,
                 .acc = acc + tile * acc_step});
  }
}

// `acc`: int32 or float accumulators of the block, [tiles][panels][max_rows * width].
void Multiply(const Product& product, const Block& block, uint32_t* acc) {
  const MatrixKernel& kernel = product.kernel();
  const int64_t groups = product.w.groups();
  const int64_t panels = block.panels;
  const int64_t tile_sums = int64_t{kernel.max_rows} * kernel.width;
  // Few rows are bound by memory alone: they read the panels from end to end, as they lie, a stream
  // that the processor fetches by itself. More rows stay at a slice and fetch the next meanwhile.
  const bool few = 2 * block.rows <= kernel.max_rows;
  const bool whole = few || groups <= product.SliceGroups();
  const int64_t step = whole ? groups : product.SliceGroups();
  const auto panel_bytes = static_cast<int64_t>(product.w.panel_bytes());
  const int64_t ahead = few ? 0 : std::max(kFetchAheadBytes, panel_bytes);
  for (int64_t g = 0; g < groups; g += step) {
    for (int64_t p = 0; p < panels; ++p) {
      Slice slice = {.panel = PanelAt(product, block.PanelOf(p), g),
                     .first_group = g,
                     .groups = std::min(step, groups - g)};
      slice.next = whole ? slice.panel + ahead
                   : p + 1 < panels
                       ? PanelAt(product, block.PanelOf(p + 1), g)
                       : PanelAt(product, block.PanelOf(0), std::min(g + step, groups));
      MultiplySlice(product, block, slice, acc + p * tile_sums, panels * tile_sums);
    }
  }
}

// Copies one row's accumulators, in the order of outputs.
void ReadAccumulators(const Product& product, const Block& block, int row, const uint32_t* acc,
                      uint32_t* __restrict sums) {
  const MatrixKernel& kernel = product.kernel();
  const int width = kernel.width;
  const int64_t panels = block.panels;
  const int unit = kernel.row_unit;
  const int within = row % kernel.max_rows;  // its tile
  const uint32_t* __restrict from = acc + (row - within) * panels * width +
                                    (within - within % unit) * width + within % unit * unit;
  for (int64_t p = 0; p < panels; ++p, sums += width, from += kernel.max_rows * width) {
    if (unit == 1) {
      std::memcpy(sums, from, width * sizeof(uint32_t));
      continue;
    }
    for (int j = 0; j < width; j += 2) {
      sums[j] = from[2 * j];
      sums[j + 1] = from[2 * j + 1];
    }
  }
}

// Consecutive outputs of one row: where they are in the product, and their sums.
struct OutputRun {
  int row = 0;
  int first = 0;
  int count = 0;
  const uint32_t* sums = nullptr;
};

// Scales int32 accumulators to floats.
void Dequantize(const Product& product, const OutputRun& run, float* values) {
  const float row_scale = product.row_scales[run.row];
  const float* scales = product.w.scales().data() + run.first;
  if (product.kernel().offset_activation) {
    const int32_t* offsets = product.w.offsets().data() + run.first;
    for (int j = 0; j < run.count; ++j) {
      const auto sum = static_cast<int32_t>(run.sums[j] - static_cast<uint32_t>(offsets[j]));
      values[j] = static_cast<float>(sum) * row_scale * scales[j];
    }
  } else {
    for (int j = 0; j < run.count; ++j) {
      values[j] = static_cast<float>(static_cast<int32_t>(run.sums[j])) * row_scale * scales[j];
    }
  }
}

// The product's values, with the bias.
void ToValues(const Product& product, const OutputRun& run, float* values) {
  if (product.kernel().sum_type == DType::kI32) {
    Dequantize(product, run, values);
  } else {
    std::memcpy(values, run.sums, run.count * sizeof(float));
    const float scale = product.HasRowScales() ? product.row_scales[run.row] : 1;
    if (scale != 1) {
      for (int j = 0; j < run.count; ++j) values[j] *= scale;
    }
  }
  if (product.call.bias == nullptr) return;
  const float* bias = product.call.bias + run.first;
  for (int j = 0; j < run.count; ++j) values[j] += bias[j];
}

void StoreRow(const Product& product, const Block& block, int row, const uint32_t* acc) {
  uint32_t sums[kMaxOutputsPerTask];
  float values[kMaxOutputsPerTask];
  ReadAccumulators(product, block, row, acc, sums);
  const int n = block.outputs;
  for (int half = 0; half < product.halves(); ++half) {
    const OutputRun run = {.row = block.first_row + row,
                           .first = block.first_output + half * product.half_outputs(),
                           .count = n,
                           .sums = sums + half * n};
    ToValues(product, run, values + half * n);
  }
  const MatrixView& to = product.call.out;
  float* out = to.data + (block.first_row + row) * to.stride + block.first_output;
  if (product.call.epilogue == Epilogue::kSwiGlu) {
    SwiGluRow(values, values + n, n, out);
  } else if (product.call.epilogue == Epilogue::kAdd) {
    for (int j = 0; j < n; ++j) out[j] += values[j];
  } else {
    std::memcpy(out, values, n * sizeof(float));
  }
}

Block BlockOf(const Product& product, int64_t task) {
  const MatrixKernel& kernel = product.kernel();
  // Neighbouring tasks share weights.
  Block block;
  block.first_row = static_cast<int>(task % product.row_blocks) * kRowsPerTask;
  block.rows = std::min(kRowsPerTask, product.call.x.rows - block.first_row);
  const int64_t outputs =
      TaskInStretches(task / product.row_blocks, product.output_blocks, product.threads);
  block.first_output = static_cast<int>(outputs) * product.outputs_per_task;
  block.outputs = std::min(product.outputs_per_task, product.half_outputs() - block.first_output);
  block.tiles = (block.rows + kernel.max_rows - 1) / kernel.max_rows;
  block.gate_panels = (block.outputs + kernel.width - 1) / kernel.width;
  block.panels = product.halves() * block.gate_panels;
  block.first_panel = block.first_output / kernel.width;
  block.first_up_panel = (block.first_output + product.half_outputs()) / kernel.width;
  return block;
}

void RunTask(const Product& product, int64_t task) {
  const MatrixKernel& kernel = product.kernel();
  const Block block = BlockOf(product, task);
  alignas(64) uint32_t acc[kRowsPerTask * kMaxOutputsPerTask];
  const int64_t sums = block.tiles * block.panels * kernel.max_rows * kernel.width;
  std::memset(acc, 0, sums * sizeof(uint32_t));
  Multiply(product, block, acc);
  for (int row = 0; row < block.rows; ++row) StoreRow(product, block, row, acc);
}

// Makes enough tasks to keep all threads busy, none too small, none with more outputs than its
// accumulators have room for.
void PlanTasks(int threads, Product* product) {
  const int width = product->kernel().width;
  product->threads = threads;
  const int64_t panels = product->w.panels() / product->halves();
  const int64_t bytes = product->w.panels() * static_cast<int64_t>(product->w.panel_bytes());
  const int64_t most_panels = kMaxOutputsPerTask / width / product->halves();
  product->row_blocks = (product->call.x.rows + kRowsPerTask - 1) / kRowsPerTask;
  int64_t tasks =
      std::min(kTasksPerThread * threads / product->row_blocks + 1, bytes / kMinTaskBytes);
  tasks = std::max(tasks, (panels + most_panels - 1) / most_panels);
  tasks = (tasks + threads - 1) / threads * threads;
  const int64_t panels_per_task = (panels + tasks - 1) / tasks;
  product->outputs_per_task = static_cast<int>(panels_per_task) * width;
  product->output_blocks = (panels + panels_per_task - 1) / panels_per_task;
}

// Calls f(task, thread) for each task, on this thread alone if the work is small.
template <typename F>
void RunTasks(ThreadPool& pool, int64_t tasks, int64_t work, const F& f) {
  if (work > kInlineWork) {
    pool.Run(tasks, f);
  } else {
    for (int64_t task = 0; task < tasks; ++task) f(task, 0);
  }
}

void RunRows(ThreadPool& pool, const ProductCall& call, MatMulScratch* scratch) {
  Product product = {.call = call, .w = *call.w};
  const MatrixKernel& kernel = product.kernel();
  const int rows = call.x.rows;
  product.row_bytes = product.w.groups() * kernel.group * DTypeSize(kernel.activation_type);
  product.packed = scratch->Activations(product.PaddedRows(rows) * product.row_bytes);
  product.row_scales = scratch->RowScales(rows);
  if (call.norm != nullptr) {
    product.normed = scratch->ThreadRows(pool.num_threads(), call.x.cols);
  }
  const int64_t elements = static_cast<int64_t>(rows) * call.x.cols;
  RunTasks(pool, (rows + kernel.max_rows - 1) / kernel.max_rows, elements,
           [&](int64_t tile, int thread) {
             PackTile(product, static_cast<int>(tile) * kernel.max_rows, thread);
           });
  PlanTasks(pool.num_threads(), &product);
  RunTasks(pool, product.row_blocks * product.output_blocks, elements * product.w.rows(),
           [&](int64_t task, int) { RunTask(product, task); });
}

uint8_t* Grow(size_t bytes, Buffer* buffer) {
  if (buffer->bytes() < bytes) {
    *buffer = {};  // first, so that old and new do not add up
    Result<Buffer> larger = AllocateStreamed(bytes);
    TALON_CHECK(larger.ok(), "{}", larger.status().message());
    *buffer = std::move(larger).value();
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
