#include "compute/cpu/matmul/mxfp4/mxfp4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/cpu/elementwise.h"
#include "compute/cpu/matmul/memory.h"

namespace talon {
namespace {

constexpr int kLargest = 127 * 128;       // largest 15-bit activation
constexpr int kMaxRows = 512;             // bounds the scratch memory
constexpr int64_t kBlockOutputs = 16;     // their codes stay in the cache for all rows
constexpr int64_t kTasksPerThread = 8;    // so that threads end together
constexpr int64_t kInlineWork = 1 << 16;  // multiplications not worth waking a thread for

// 2^(exponent - 128) has the exponent bits exponent - 1. The two smallest, subnormal numbers,
// become the smallest normal one; 255, not a number, stays what no finite product can be.
uint8_t KeptScale(uint8_t exponent) {
  return exponent == 255 ? 255 : std::max<uint8_t>(exponent, 2) - 1;
}

// Loops without branches, which compilers vectorise.
void PackGroup(const float* x, int run, int8_t* packed, float* scale) {
  float largest = 0;
  float not_finite = 0;  // NaN if a value is NaN or infinite
  for (int i = 0; i < kMxfp4Group; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    not_finite += x[i] * 0;
  }
  *scale = largest / kLargest + not_finite;
  const bool usable = *scale >= std::numeric_limits<float>::min();
  const float inverse = usable ? kLargest / largest : 0;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: rounds to an integer in the low bits
  int16_t values[kMxfp4Group];
  for (int i = 0; i < kMxfp4Group; ++i) {
    values[i] = static_cast<int16_t>(std::bit_cast<int32_t>(x[i] * inverse + kRound) -
                                     std::bit_cast<int32_t>(kRound));
  }
  int8_t high[kMxfp4Group], low[kMxfp4Group];  // even inputs, then odd ones
  for (int i = 0; i < kMxfp4Group; ++i) {
    const int value = values[2 * (i % kMxfp4GroupBytes) + i / kMxfp4GroupBytes];
    high[i] = static_cast<int8_t>((value + 64) >> 7);
    low[i] = static_cast<int8_t>(value - high[i] * 128);
  }
  constexpr int kChunk = 8;
  for (int i = 0; i < kMxfp4Group; i += kChunk) {
    int8_t* to = packed + i / run * 2 * run + i % run;
    std::memcpy(to, high + i, kChunk);
    std::memcpy(to + run, low + i, kChunk);
  }
}

// At most kMaxRows rows: everything the tasks share.
struct Product {
  const MatMulArgs& args;
  const Mxfp4Weight& w;
  const Mxfp4Kernel& kernel;
  int8_t* packed;  // tile by tile, as Mxfp4Tile has them
  float* x_scales;
  float* normed;  // a row for each thread
};

void PackRow(const Product& product, int row, int thread) {
  const MatMulArgs& args = product.args;
  const float* x = args.x.data + row * args.x.stride;
  if (args.norm != nullptr) {
    float* normed = product.normed + int64_t{thread} * args.x.cols;
    RmsNormRow(x, args.x.cols, args.norm, args.epsilon, normed);
    x = normed;
  }
  const int first = row - row % kMxfp4MaxRows;  // the first row of its tile
  const int rows = std::min(kMxfp4MaxRows, args.x.rows - first);
  const int64_t groups = product.w.groups();
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t at = first * groups + g * rows + row - first;
    PackGroup(x + g * kMxfp4Group, product.kernel.run, product.packed + at * kMxfp4PackedBytes,
              product.x_scales + at);
  }
}

void StoreSums(const Product& product, int64_t first_output, int first_row, const Mxfp4Tile& tile) {
  const MatMulArgs& args = product.args;
  for (int r = 0; r < tile.rows; ++r) {
    float* out = args.out.data + (first_row + r) * args.out.stride + first_output;
    for (int i = 0; i < tile.outputs; ++i) {
      const float bias = args.bias == nullptr ? 0 : args.bias[first_output + i];
      const float value = tile.sums[r * kMxfp4Outputs + i] + bias;
      out[i] = args.accumulate ? out[i] + value : value;
    }
  }
}

void RunOutputs(const Product& product, int64_t first, int64_t last) {
  const int64_t groups = product.w.groups();
  for (int row = 0; row < product.args.x.rows; row += kMxfp4MaxRows) {
    const int rows = std::min(kMxfp4MaxRows, product.args.x.rows - row);
    for (int64_t output = first; output < last; output += kMxfp4Outputs) {
      float sums[kMxfp4MaxRows * kMxfp4Outputs];
      const Mxfp4Tile tile = {
          .codes = product.w.codes(output),
          .scales = product.w.scales(output),
          .outputs = static_cast<int>(std::min<int64_t>(kMxfp4Outputs, last - output)),
          .groups = groups,
          .rows = rows,
          .x = product.packed + row * groups * kMxfp4PackedBytes,
          .x_scales = product.x_scales + row * groups,
          .sums = sums};
      product.kernel.tile(tile);
      StoreSums(product, output, row, tile);
    }
  }
}

template <typename F>
void RunTasks(ThreadPool& pool, int64_t tasks, int64_t work, const F& f) {
  if (work > kInlineWork) {
    pool.Run(tasks, f);
  } else {
    for (int64_t task = 0; task < tasks; ++task) f(task, 0);
  }
}

void RunRows(ThreadPool& pool, const MatMulArgs& args, const Mxfp4Weight& w,
             const Mxfp4Kernel& kernel, MatMulScratch* scratch) {
  const int64_t row_groups = args.x.rows * w.groups();
  uint8_t* memory =
      scratch->Activations(row_groups * (kMxfp4PackedBytes + static_cast<int64_t>(sizeof(float))));
  const Product product = {
      .args = args,
      .w = w,
      .kernel = kernel,
      .packed = reinterpret_cast<int8_t*>(memory),
      .x_scales = reinterpret_cast<float*>(memory + row_groups * kMxfp4PackedBytes),
      .normed =
          args.norm == nullptr ? nullptr : scratch->ThreadRows(pool.num_threads(), args.x.cols)};
  const int64_t elements = int64_t{args.x.rows} * args.x.cols;
  RunTasks(pool, args.x.rows, elements,
           [&](int64_t row, int thread) { PackRow(product, static_cast<int>(row), thread); });
  const int64_t blocks = CeilDiv(int64_t{w.rows()}, kBlockOutputs);
  const int64_t tasks = std::min(blocks, kTasksPerThread * pool.num_threads());
  RunTasks(pool, tasks, elements * w.rows(), [&](int64_t task, int) {
    const int64_t mine = TaskInStretches(task, tasks, pool.num_threads());
    for (int64_t b = mine * blocks / tasks; b < (mine + 1) * blocks / tasks; ++b) {
      RunOutputs(product, b * kBlockOutputs, std::min<int64_t>((b + 1) * kBlockOutputs, w.rows()));
    }
  });
}

}  // namespace

Result<std::unique_ptr<Weight>> NewMxfp4Weight(const HostMatrix& part) {
  auto weight = std::make_unique<Mxfp4Weight>();
  weight->rows_ = static_cast<int>(part.rows);
  weight->cols_ = static_cast<int>(part.cols);
  weight->codes_ = static_cast<const uint8_t*>(part.data);
  weight->owner_ = part.owner;
  const int64_t groups = weight->groups();
  if (part.owner == nullptr) {
    const size_t bytes = part.rows * groups * kMxfp4GroupBytes;
    TALON_ASSIGN_OR_RETURN(weight->copy_, AllocateStreamed(bytes));
    weight->codes_ = static_cast<uint8_t*>(std::memcpy(weight->copy_.data(), part.data, bytes));
  }
  const int64_t padded = CeilDiv(part.rows, int64_t{kMxfp4Outputs}) * kMxfp4Outputs;
  TALON_ASSIGN_OR_RETURN(weight->scales_, AllocateStreamed(padded * groups));
  auto* scales = static_cast<uint8_t*>(weight->scales_.data());
  for (int64_t row = 0; row < part.rows; ++row) {
    uint8_t* to = scales + row / kMxfp4Outputs * kMxfp4Outputs * groups + row % kMxfp4Outputs;
    for (int64_t g = 0; g < groups; ++g) {
      to[g * kMxfp4Outputs] = KeptScale(part.scales[row * groups + g]);
    }
  }
  return std::unique_ptr<Weight>(std::move(weight));
}

void RunMxfp4Product(ThreadPool& pool, const MatMulArgs& args, const Mxfp4Weight& w,
                     MatMulScratch* scratch, const Mxfp4Kernel* kernel) {
  if (kernel == nullptr) kernel = AttainableMxfp4Kernels()[0];
  TALON_CHECK(args.x.cols == w.cols() && args.out.cols == w.rows() && args.out.rows == args.x.rows,
              "matmul: [{}, {}] by [{}, {}] into [{}, {}]", args.x.rows, args.x.cols, w.rows(),
              w.cols(), args.out.rows, args.out.cols);
  for (int row = 0; row < args.x.rows; row += kMaxRows) {
    const int rows = std::min(kMaxRows, args.x.rows - row);
    MatMulArgs part = args;
    part.x = args.x.Rows(row, rows);
    part.out = args.out.Rows(row, rows);
    RunRows(pool, part, w, *kernel, scratch);
  }
}

}  // namespace talon
