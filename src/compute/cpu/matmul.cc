#include "compute/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "compute/cpu/matmul_memory.h"
#include "compute/cpu/quantize.h"

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

// What one task computes.
struct Block {
  int first_row, rows;
  int first_output, outputs;  // outputs: valid ones, the last panel may hold fewer than its width
};

// A run of groups of one panel.
struct Slice {
  const uint8_t* panel = nullptr;  // at first_group
  int64_t first_group = 0, groups = 0;
  const uint8_t* next = nullptr;  // what to fetch meanwhile, as long as the slice; `panel`: nothing
};

// At most kMaxRows rows: everything the tasks share.
struct Product {
  const PackedWeight& w;
  const float* bias;
  MatrixView x;
  MatrixView out;
  bool accumulate;

  uint8_t* packed = nullptr;  // tiles of activations, as TileArgs has them
  int64_t row_bytes = 0;      // of one packed row
  float* row_scales = nullptr;

  int outputs_per_task = 0;
  int64_t row_blocks = 0;
  int64_t output_blocks = 0;

  const MatrixKernel& kernel() const { return w.kernel(); }
  bool HasRowScales() const {
    return kernel().activation_type == DType::kI8 || kernel().activation_type == DType::kF16;
  }
  int PaddedRows(int rows) const {
    const int unit = kernel().row_unit;
    return (rows + unit - 1) / unit * unit;
  }
  int64_t Panels(const Block& block) const {
    return (block.outputs + kernel().width - 1) / kernel().width;
  }
  int64_t SliceGroups() const {
    return std::max<int64_t>(1, kPanelSliceBytes / kernel().panel_group_bytes);
  }
  // Tiles before the last are full, so a tile starts where its rows would.
  const uint8_t* Tile(int first_row) const { return packed + first_row * row_bytes; }
};

void ZeroGroups(const InterleavedRow& row, int64_t first, int64_t last) {
  auto* to = static_cast<uint8_t*>(row.to);
  const size_t bytes = row.group * DTypeSize(row.type);
  for (int64_t g = first; g < last; ++g) std::memset(to + g * row.stride, 0, bytes);
}

void PackTile(const Product& product, int first_row) {
  const MatrixKernel& kernel = product.kernel();
  const int rows = std::min(kernel.max_rows, product.x.rows - first_row);
  const int padded = product.PaddedRows(rows);
  const size_t group_bytes = kernel.x_group * DTypeSize(kernel.activation_type);
  const int64_t groups = product.w.groups() * kernel.group / kernel.x_group;
  const int64_t filled = (product.x.cols + kernel.x_group - 1) / kernel.x_group;
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
    const float* from = product.x.data + (first_row + r) * product.x.stride;
    if (product.HasRowScales()) {
      const RowScale scale = kernel.activation_type == DType::kI8
                                 ? ChooseInt8Scale(from, DType::kF32, product.x.cols)
                                 : ChooseF16Scale(from, product.x.cols);
      product.row_scales[first_row + r] = scale.scale;
      row.inverse_scale = scale.inverse;
    }
    PackRow(from, DType::kF32, product.x.cols, row);
    ZeroGroups(row, filled, groups);
  }
}

// Where the weights of `panel` start, from `group` on.
const uint8_t* PanelAt(const Product& product, int64_t panel, int64_t group) {
  return product.w.panel(panel) + group * product.kernel().panel_group_bytes;
}

// All tiles of the block by one slice of a panel, fetching the slice `next` meanwhile (its length
// divided among the tiles). `acc`: the first tile's sums; `acc_step`: from tile to tile.
void MultiplySlice(const Product& product, const Block& block, const Slice& slice, uint32_t* acc,
                   int64_t acc_step) {
  const MatrixKernel& kernel = product.kernel();
  const int64_t row_group = kernel.group * DTypeSize(kernel.activation_type);
  const int64_t tiles = (block.rows + kernel.max_rows - 1) / kernel.max_rows;
  const int64_t step = slice.next == slice.panel ? 0 : kernel.panel_group_bytes / tiles;
  for (int64_t tile = 0; tile < tiles; ++tile) {
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

// `acc`: int32 or float sums of the block, [tiles][panels][max_rows * width].
void Multiply(const Product& product, const Block& block, uint32_t* acc) {
  const MatrixKernel& kernel = product.kernel();
  const int64_t groups = product.w.groups();
  const int64_t panels = product.Panels(block);
  const int64_t first = block.first_output / kernel.width;
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
      Slice slice = {.panel = PanelAt(product, first + p, g),
                     .first_group = g,
                     .groups = std::min(step, groups - g)};
      slice.next = whole            ? slice.panel + ahead
                   : p + 1 < panels ? PanelAt(product, first + p + 1, g)
                                    : PanelAt(product, first, std::min(g + step, groups));
      MultiplySlice(product, block, slice, acc + p * tile_sums, panels * tile_sums);
    }
  }
}

// One row's sums, in the order of outputs.
void ReadSums(const Product& product, const Block& block, int row, const uint32_t* acc,
              uint32_t* __restrict sums) {
  const MatrixKernel& kernel = product.kernel();
  const int width = kernel.width;
  const int64_t panels = product.Panels(block);
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

// int32 sums to floats.
void Dequantize(const Product& product, const Block& block, int row, const uint32_t* sums,
                float* values) {
  const float row_scale = product.row_scales[block.first_row + row];
  const float* scales = product.w.scales().data() + block.first_output;
  if (product.kernel().offset_activation) {
    const int32_t* offsets = product.w.offsets().data() + block.first_output;
    for (int j = 0; j < block.outputs; ++j) {
      const auto sum = static_cast<int32_t>(sums[j] - static_cast<uint32_t>(offsets[j]));
      values[j] = static_cast<float>(sum) * row_scale * scales[j];
    }
  } else {
    for (int j = 0; j < block.outputs; ++j) {
      values[j] = static_cast<float>(static_cast<int32_t>(sums[j])) * row_scale * scales[j];
    }
  }
}

void StoreRow(const Product& product, const Block& block, int row, const uint32_t* acc) {
  uint32_t sums[kMaxOutputsPerTask];
  float values[kMaxOutputsPerTask];
  ReadSums(product, block, row, acc, sums);
  if (product.kernel().sum_type == DType::kI32) {
    Dequantize(product, block, row, sums, values);
  } else {
    std::memcpy(values, sums, sizeof(values));
    const float scale = product.HasRowScales() ? product.row_scales[block.first_row + row] : 1;
    if (scale != 1) {
      for (int j = 0; j < block.outputs; ++j) values[j] *= scale;
    }
  }
  if (product.bias != nullptr) {
    const float* bias = product.bias + block.first_output;
    for (int j = 0; j < block.outputs; ++j) values[j] += bias[j];
  }
  float* out = product.out.data + (block.first_row + row) * product.out.stride + block.first_output;
  if (product.accumulate) {
    for (int j = 0; j < block.outputs; ++j) out[j] += values[j];
  } else {
    std::memcpy(out, values, block.outputs * sizeof(float));
  }
}

void RunTask(const Product& product, int64_t task) {
  // Neighbouring tasks share weights.
  Block block;
  block.first_row = static_cast<int>(task % product.row_blocks) * kRowsPerTask;
  block.rows = std::min(kRowsPerTask, product.x.rows - block.first_row);
  block.first_output = static_cast<int>(task / product.row_blocks) * product.outputs_per_task;
  block.outputs = std::min(product.outputs_per_task, product.w.rows() - block.first_output);

  const int max_rows = product.kernel().max_rows;
  const int tile_rows = (block.rows + max_rows - 1) / max_rows * max_rows;
  alignas(64) uint32_t acc[kRowsPerTask * kMaxOutputsPerTask];
  std::memset(acc, 0, tile_rows * product.outputs_per_task * sizeof(uint32_t));
  Multiply(product, block, acc);
  for (int row = 0; row < block.rows; ++row) StoreRow(product, block, row, acc);
}

// As many tasks as there are threads to take them, none too small, none with more outputs than its
// sums have room for.
void PlanTasks(int threads, Product* product) {
  const int64_t panels = product->w.panels();
  product->row_blocks = (product->x.rows + kRowsPerTask - 1) / kRowsPerTask;
  const int64_t worthwhile =
      panels * static_cast<int64_t>(product->w.panel_bytes()) / kMinTaskBytes;
  int64_t tasks = std::min(kTasksPerThread * threads / product->row_blocks + 1, worthwhile);
  tasks =
      std::max(tasks, (int64_t{product->w.rows()} + kMaxOutputsPerTask - 1) / kMaxOutputsPerTask);
  tasks = (tasks + threads - 1) / threads * threads;
  const int64_t panels_per_task = std::max<int64_t>(1, (panels + tasks - 1) / tasks);
  product->outputs_per_task = static_cast<int>(panels_per_task) * product->kernel().width;
  product->output_blocks = (panels + panels_per_task - 1) / panels_per_task;
}

// Calls f for each task, on this thread alone if the work is small.
template <typename F>
void RunTasks(ThreadPool& pool, int64_t tasks, int64_t work, const F& f) {
  if (work > kInlineWork) {
    pool.Run(tasks, [&](int64_t task, int) { f(task); });
  } else {
    for (int64_t task = 0; task < tasks; ++task) f(task);
  }
}

void RunProduct(ThreadPool& pool, Product& product, MatMulScratch* scratch) {
  const MatrixKernel& kernel = product.kernel();
  const int rows = product.x.rows;
  product.row_bytes = product.w.groups() * kernel.group * DTypeSize(kernel.activation_type);
  product.packed = scratch->Activations(product.PaddedRows(rows) * product.row_bytes);
  product.row_scales = scratch->RowScales(rows);
  const int64_t elements = static_cast<int64_t>(rows) * product.x.cols;
  RunTasks(pool, (rows + kernel.max_rows - 1) / kernel.max_rows, elements,
           [&](int64_t tile) { PackTile(product, static_cast<int>(tile) * kernel.max_rows); });
  PlanTasks(pool.num_threads(), &product);
  RunTasks(pool, product.row_blocks * product.output_blocks, elements * product.w.rows(),
           [&](int64_t task) { RunTask(product, task); });
}

}  // namespace

uint8_t* MatMulScratch::Activations(size_t bytes) {
  if (activations_.bytes() < bytes) {
    activations_ = {};  // first, so that old and new do not add up
    Result<Buffer> larger = AllocateStreamed(bytes);
    TALON_CHECK(larger.ok(), "{}", larger.status().message());
    activations_ = std::move(larger).value();
  }
  return static_cast<uint8_t*>(activations_.data());
}

float* MatMulScratch::RowScales(int rows) {
  if (row_scales_.size() < static_cast<size_t>(rows)) row_scales_.resize(rows);
  return row_scales_.data();
}

void MatMul(ThreadPool& pool, MatrixView x, const PackedWeight& w, const float* bias,
            MatrixView out, bool accumulate, MatMulScratch* scratch) {
  TALON_CHECK(x.cols == w.cols() && out.cols == w.rows() && out.rows == x.rows,
              "matmul: [{}, {}] by [{}, {}] into [{}, {}]", x.rows, x.cols, w.rows(), w.cols(),
              out.rows, out.cols);
  for (int row = 0; row < x.rows; row += kMaxRows) {
    const int rows = std::min(kMaxRows, x.rows - row);
    Product product = {.w = w,
                       .bias = bias,
                       .x = x.Rows(row, rows),
                       .out = out.Rows(row, rows),
                       .accumulate = accumulate};
    RunProduct(pool, product, scratch);
  }
}

std::string MatMulKernelNames() {
  std::string names;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI4}) {
    if (!names.empty()) names += ", ";
    names += AttainableKernels(type)[0]->name;
  }
  return names;
}

}  // namespace talon
