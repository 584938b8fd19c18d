#include "compute/cpu/matmul/matmul.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/contain.h"
#include "base/math.h"
#include "compute/cpu/matmul/memory.h"
#include "compute/cpu/matmul/product/pack_rows.h"
#include "compute/cpu/matmul/product/product.h"
#include "compute/cpu/matmul/product/run_block.h"
#include "compute/cpu/matmul/product/run_tasks.h"
#include "compute/cpu/matmul/product/store_rows.h"

namespace talon {
namespace {

constexpr int kMaxRows = 512;  // bounds the scratch memory
// Weights of a task: worth handing out, a stream to fetch.
constexpr int64_t kMinTaskBytes = 32 << 10;
// Tasks of kTaskRows rows for each thread, or as many larger ones as have their rows: where there
// is enough, so that threads end together.
constexpr int64_t kTasksPerThread = 8, kTaskRows = 64;

// Makes enough tasks to keep all threads busy, none too small, none with more outputs than its sums
// have room for.
void PlanTasks(int threads, Product* product) {
  const MatrixKernel& kernel = product->kernel();
  const int64_t panels = product->w.panels() / product->halves();
  const int64_t bytes = product->w.panels() * static_cast<int64_t>(product->w.panel_bytes());
  const int64_t most_panels = kernel.limits.outputs / kernel.width / product->halves();
  const int rows = product->call.x.rows;
  product->row_blocks = CeilDiv(rows, kernel.limits.rows);
  const int64_t block_rows = std::min(rows, kernel.limits.rows);
  const int64_t wanted = kTasksPerThread * threads * kTaskRows / std::max(kTaskRows, block_rows);
  int64_t tasks = std::min(wanted / product->row_blocks + 1, bytes / kMinTaskBytes);
  tasks = std::max(tasks, CeilDiv(panels, most_panels));
  tasks = RoundUp(tasks, threads);
  const int64_t panels_per_task = CeilDiv(panels, tasks);
  product->outputs_per_task = static_cast<int>(panels_per_task) * kernel.width;
  product->output_blocks = CeilDiv(panels, panels_per_task);
  const MatrixView& out = product->call.out;
  product->streams = int64_t{out.rows} * out.cols * static_cast<int64_t>(sizeof(float)) >
                     kernel.limits.streamed_bytes;
}

// One block of outputs by one of rows. Neighbouring tasks share weights.
void RunTask(const Product& product, int64_t task, int threads, int thread) {
  const MatrixKernel& kernel = product.kernel();
  const int64_t outputs =
      TaskInStretches(task / product.row_blocks, product.output_blocks, threads);
  if (kernel.begin != nullptr) kernel.begin();
  RunBlock(product, BlockOf(product, task % product.row_blocks, outputs),
           product.sums + thread * product.sums_bytes);
  if (kernel.end != nullptr) kernel.end();
  if (product.streams) FlushStreams();
}

void RunRows(ThreadPool& pool, const ProductCall& call, MatMulScratch* scratch) {
  Product product = {.call = call, .w = *call.w};
  const int rows = call.x.rows;
  const int threads = pool.num_threads();
  product.tile_bytes = TileStride(product);
  const int64_t tiles = CeilDiv(rows, product.kernel().max_rows);
  product.packed = scratch->Activations(tiles * product.tile_bytes);
  product.row_scales = scratch->RowScales(rows * product.num_segments());
  if (product.ChangesRows()) product.thread_rows = scratch->ThreadRows(threads, call.x.cols);
  PackRows(pool, product);
  PlanTasks(threads, &product);
  product.sums_bytes = RoundUp(BlockSumsBytes(product), 64);
  product.sums = scratch->Sums(threads * product.sums_bytes);
  const int64_t work = int64_t{rows} * call.x.cols * product.w.rows();
  RunTasks(pool, product.row_blocks * product.output_blocks, work,
           [&](int64_t task, int thread) { RunTask(product, task, threads, thread); });
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

uint8_t* MatMulScratch::Sums(size_t bytes) { return Grow(bytes, &sums_); }

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
