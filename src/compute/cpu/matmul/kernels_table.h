// Matrix kernels: the innermost loops of MatMul, one per instruction set, chosen at run time.
//
// All kernels share one shape, so one driver (matmul.cc) and one packing serve them all. Outputs
// are taken in panels of `width`, rows in tiles of at most `max_rows`, and inputs in groups of
// `group` that the instruction consumes together. A tile call adds the products of one tile and one
// panel over consecutive groups to accumulators in memory, which makes it possible to cut the
// inputs into cache-sized slices at any group without changing the result:
//   * float kernels add to each output element in ascending order of inputs (bf16 matrix kernels:
//     of groups), whatever the tile;
//   * int8 kernels accumulate in int32, which is exact (PackWeight limits the number of inputs), so
//     every int8 kernel gives the same bits;
//   * int4 kernels sum the 32 products of a group in int32, exactly, and add this sum times the
//     group's scale with one fma, in ascending order of groups: every int4 kernel gives the same
//     bits too.
// So the bits of a row never depend on its tile, on the other rows, or on the slices.
//
// This header is included by files compiled for special instruction sets: it defines no inline
// function, which the linker could take from such a file for the whole program.
#ifndef TALON_COMPUTE_CPU_MATMUL_KERNELS_TABLE_H_
#define TALON_COMPUTE_CPU_MATMUL_KERNELS_TABLE_H_

#include <stdint.h>

#include "compute/dtype.h"

// Before each loop over an array of vectors: without it GCC unrolls such loops too late to keep the
// array in registers.
#if defined(__clang__)
#define TALON_UNROLL _Pragma("unroll")
#else
#define TALON_UNROLL _Pragma("GCC unroll 32")
#endif

namespace talon {

// How far products of few rows fetch ahead in the weights they stream. Arm's processors follow a
// stream by themselves; on Intel's it ends with its page.
#if defined(__x86_64__)
constexpr int64_t kStreamAheadBytes = 8 << 10;
#else
constexpr int64_t kStreamAheadBytes = 0;
#endif

// A group of an int4 panel: [16 / x_group][width][x_group] bytes, whose low halves are the codes of
// x_group inputs and whose high halves those of the next x_group inputs; then the scales, [width]
// bf16. Kernels multiply by 16 times the codes, because a code in the high half of a byte is that
// already, so the scales are kept as sixteenths.

struct TileArgs {
  const void* x;      // [groups * group / x_group][rows][x_group] activations, in memory that
                      // max_rows rows of them would need: kernels may read on that far
  const void* panel;  // [groups][panel_group_bytes]: [group / w_group][width][w_group] weights, or
                      // as above for int4
  int64_t groups;     // >= 1
  int rows;           // a multiple of row_unit, 1..max_rows
  bool single;        // all rows but the first are padding, and their sums are not read
  const void* next;   // prefetched into the second-level cache meanwhile: `next_step` bytes for
  int64_t next_step;  // each group. A hint, which a kernel may ignore.
  // Accumulators of sum_type to begin with, and where they go: room for max_rows rows each, of
  // which a kernel may read and write all. They may be the same.
  const void* from;
  void* to;
  bool fresh;     // `from` holds zeros: no need to read them
  bool expanded;  // `panel` is what MatrixKernel::expand made of it
};

// What a task holds at a time, and how it walks through the weights.
struct BlockLimits {
  int rows = 64;                   // a multiple of max_rows
  int outputs = 128;               // a multiple of twice the width
  int few_rows = 0;                // so few are bound by memory alone; 0: half of max_rows
  int packed_rows = 0;             // so few take weights as they lie, where they can be expanded
  int64_t slice_bytes = 16 << 10;  // panel bytes that tiles share in the first-level cache
  int64_t streamed_bytes = INT64_MAX;  // outputs of more are stored past the caches
};

struct MatrixKernel {
  const char* name;        // "int8 smmla"
  DType weight_type;       // kF32, kF16, kBF16, kI8, kI4
  DType activation_type;   // activations are rounded (kF32, kF16, kBF16) or quantised (kI8) to this
  DType sum_type;          // the accumulators' type: kF32, or kI32 to be scaled at the end
  int width;               // outputs per panel
  int group;               // inputs that a step of the tile takes
  int x_group;             // inputs of a row of activations that lie together; divides `group`
  int panel_group_bytes;   // bytes of a panel per group
  int max_rows;            // rows per tile
  int row_unit;            // a tile's rows are padded with zeros to a multiple of this: 1 or 2
                           // Accumulators are [rows / unit][width / unit][unit][unit].
  bool offset_activation;  // int8 activations are stored as unsigned, x + 128 (vpdpbusd)
  void (*tile)(const TileArgs& args);
  // Runs a loop of the kernel's instruction on a few words of memory and returns the number of
  // multiplications and additions that were done. Its operands are loaded every time: with constant
  // ones some cores keep to half of their pipes. Null: none of its own.
  int64_t (*burn)(int64_t iterations);
  int w_group = 0;  // inputs of an output that lie together in a panel; 0: the whole group
  BlockLimits limits = {};
  // Makes of some groups of a panel what tiles want in its place for more than packed_rows,
  // expanded_group_bytes for each, 64-byte aligned. Null: nothing.
  void (*expand)(const void* panel, int64_t groups, void* to) = nullptr;
  int64_t expanded_group_bytes = 0;
  // A thread calls these before the first and after the last tile of a task, if they are not null.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

// Kernels for weights of `weight_type` that this processor can run, best first, ended by a null.
const MatrixKernel* const* AttainableKernels(DType weight_type);

// The entries of the table. The float kernels are for any processor (Highway picks the target).
const MatrixKernel& FloatKernel(DType weight_type);
const MatrixKernel& PortableInt8Kernel();
const MatrixKernel& PortableInt4Kernel();
#if defined(__aarch64__)
const MatrixKernel& ArmDotprodKernel();
const MatrixKernel& ArmDotprodInt4Kernel();
const MatrixKernel& ArmI8mmKernel();
const MatrixKernel& ArmI8mmInt4Kernel();
const MatrixKernel& ArmBf16Kernel();
const MatrixKernel& ArmFp16Kernel();
#elif defined(__x86_64__)
const MatrixKernel& X86AmxBf16Kernel();
const MatrixKernel& X86AmxInt4Kernel();  // REQUIRES: VNNI as well
const MatrixKernel& X86AmxInt8Kernel();
const MatrixKernel& X86Avx2Kernel();
const MatrixKernel& X86Avx2Int4Kernel();
const MatrixKernel& X86Avx512Bf16Kernel();
const MatrixKernel& X86VnniKernel();
const MatrixKernel& X86VnniInt4Kernel();
const MatrixKernel& X86Bf16Kernel();
#endif

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_KERNELS_TABLE_H_
