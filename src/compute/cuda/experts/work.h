// What the expert kernels share: the table of experts, the routes of a pass, and a product's
// arguments.
#ifndef TALON_COMPUTE_CUDA_EXPERTS_WORK_H_
#define TALON_COMPUTE_CUDA_EXPERTS_WORK_H_

#include <cstdint>

#include "compute/backend.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/dtype.h"

namespace talon::cuda {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsPerRow = 32;
inline constexpr int kChunkInputs = 128;  // inputs that a warp takes at a time
inline constexpr int kExpertWarps = 4;    // they share the inputs of an item, a quarter each
inline constexpr int kItemOutputs = 32;   // rows of the matrix that an item takes: two of 16

struct ExpertMatrix {
  const void* data;
  const void* scales;
  const float* bias;  // or null
};
struct ExpertEntry {
  ExpertMatrix gate_up;
  ExpertMatrix down;
};

// Pairs [begin, begin + count) of the sorted pairs go through this expert of the table.
struct ExpertTile {
  int32_t expert;
  int32_t begin;
  int32_t count;
};

// The routes of a pass, in device memory. Slot row * per_row + i is the row's i-th expert, by
// ascending index.
struct Routes {
  float* logits;         // [rows, experts]
  int32_t* experts;      // [slots]
  float* weights;        // [slots]
  int32_t* pairs;        // [slots]: those of own experts, sorted by expert
  ExpertTile* tiles;     // [num_tiles]
  int32_t* num_tiles;    // [1]
  uint32_t* row_blocks;  // [rows + 1] counters, zero between launches
};

struct RouteArgs {
  MatrixView x;
  const float* norm;
  float epsilon;
  const float* router;  // [experts, router_stride]
  int64_t router_stride;
  const float* router_bias;  // or null
  int experts;
  int first_own;  // experts [first_own, first_own + own) are in the table
  int own;
  ExpertRule rule;
  int tile_pairs;  // maximum of a tile
  // RmsNorm(x) times operand_factor in the type that the experts' matrices need, zeros from x.cols
  // to operand_stride.
  float operand_factor;
  void* operand;
  int64_t operand_stride;
  Routes routes;
};

// A product of all tiles: gate_up, whose results are activated and stored by pair, or down, whose
// results are stored by slot.
struct ExpertProduct {
  const ExpertEntry* table;
  Routes routes;
  int per_row;
  float gate_limit;  // ExpertRule; above 0: rows of gate and up alternate
  // x: rows of the pass (gate_up) or pairs (down), zero from `inputs` on.
  const void* x;
  int64_t x_stride;  // a multiple of kChunkInputs
  int inputs;
  int outputs;  // gate_up: columns of the activation, half the matrix's rows
  int matrix_rows;
  int64_t row_bytes;  // bytes of a matrix row, where matrices are row-major
  int64_t scale_stride;
  void* out;           // gate_up: [pairs, out_stride] in x's type; down: [slots, outputs] float32
  int64_t out_stride;  // columns from `outputs` on are set to zero
  float out_factor;    // gate_up multiplies its results with it
  int ranges = 0;      // ranges of items, one for each multiprocessor
};

void LaunchRoute(const Stream& stream, const RouteArgs& args, DType operand);
// `tile_pairs`: 8, 16 or 32. `items`: at most as many there are.
void LaunchExpertsF32(const Stream& stream, const ExpertProduct& product, bool gated,
                      int tile_pairs, int items);
void LaunchExpertsBF16(const Stream& stream, const ExpertProduct& product, bool gated,
                       int tile_pairs, int items);
void LaunchExpertsF16(const Stream& stream, const ExpertProduct& product, bool gated,
                      int tile_pairs, int items);
void LaunchExpertsInt8(const Stream& stream, const ExpertProduct& product, bool gated,
                       int tile_pairs, int items);
void LaunchExpertsMxfp4(const Stream& stream, const ExpertProduct& product, bool gated,
                        int tile_pairs, int items);
// x[row] += the sum of the row's slots.
void LaunchCombine(const Stream& stream, MatrixView x, const float* results, int per_row);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_EXPERTS_WORK_H_
