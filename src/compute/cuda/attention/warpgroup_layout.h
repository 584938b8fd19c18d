// Index arithmetic of attention with wgmma (attention/warpgroup.cuh): plain integers, so that a
// test without a GPU can verify them.
//
// Queries, keys and values lie in shared memory as matrices of 64 columns: rows of 128 bytes with
// the 128-byte swizzle (16-byte pieces permuted within each eight rows) that TMA writes and wgmma
// reads.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_LAYOUT_H_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_LAYOUT_H_

#include <cstdint>

namespace talon::cuda {

inline constexpr int kStepKeys = 128;  // keys per step
// Stages of keys and of values that fit shared memory beside the queries.
constexpr int WarpgroupStages(int groups) { return groups == 1 ? 3 : 2; }
// Bytes that keep the accumulators of a section, but four of each thread: all of them would not fit
// beside two stages. Three stages leave no room.
constexpr int KeptBytes(int groups, int dim) {
  const int columns = dim <= 64 ? 64 : 128;
  return groups == 1 ? 0 : groups * 128 * (columns / 2 - 4) * 4;
}
inline constexpr int kBoxKeys = 16;         // keys per TMA box
inline constexpr int kPanelCols = 64;       // columns of a matrix
inline constexpr int kPanelRowBytes = 128;  // 64 16-bit elements
inline constexpr int kBoxBytes = kBoxKeys * kPanelRowBytes;
inline constexpr int kPanelAlignment = 1024;  // alignment of a matrix, for the swizzle

// Byte offset of piece `piece` (8 columns) of a row, swizzled. Matrices of `rows` rows follow each
// other.
constexpr int PieceOffset(int rows, int row, int piece) {
  const int matrix = piece / 8;
  return (matrix * rows + row) * kPanelRowBytes + ((piece % 8) ^ (row % 8)) * 16;
}

// The boxes of a step: those of the first 64 columns, then those of the next. First key and column
// of a box, and its byte offset.
constexpr int BoxKey(int box) { return box % (kStepKeys / kBoxKeys) * kBoxKeys; }
constexpr int BoxColumn(int box) { return box / (kStepKeys / kBoxKeys) * kPanelCols; }
constexpr int BoxOffset(int box) { return box * kBoxBytes; }

// Codes of 8 bits are read a portion of 32 keys at once, by a warp: lanes have pieces of 16 codes,
// one in each of CodeLoads(dim) keys. `dim` is the number of columns, 64 or 128. Lanes whose stores
// of an expanded piece fall together write to different banks.
inline constexpr int kPortionKeys = 32;
constexpr int CodeLoads(int dim) { return dim / 16; }  // as many as pieces of a key
constexpr int CodePiece(int dim, int lane) { return lane % CodeLoads(dim); }
constexpr int CodeKey(int dim, int lane, int load) {
  const int keys = 32 / CodeLoads(dim);  // in each load
  return load * keys + (lane / CodeLoads(dim) ^ CodePiece(dim, lane) / 4);
}
// Byte offset of a half of a piece that is expanded, given that of the lane's first one.
constexpr int CodeOffset(int dim, int first, int load, int half) {
  const int keys = load * 32 / CodeLoads(dim);
  return (first ^ (half + keys % 8) * 16) + keys * kPanelRowBytes;
}

// wgmma matrix descriptors at `address`, a multiple of kPanelAlignment. The reduction runs along a
// row (K-major: queries, keys) or along a column (MN-major: values, whose matrices are
// `matrix_bytes` apart).
constexpr uint64_t SwizzledAt(uint32_t address) {
  constexpr uint64_t kSwizzle128 = 1;
  constexpr uint64_t kEightRows = 8 * kPanelRowBytes / 16;
  return uint64_t{(address & 0x3FFFF) >> 4} | kEightRows << 32 | kSwizzle128 << 62;
}
constexpr uint64_t RowDescriptor(uint32_t address) {
  return SwizzledAt(address) | uint64_t{1} << 16;
}
constexpr uint64_t ColumnDescriptor(uint32_t address, int matrix_bytes) {
  return SwizzledAt(address) | uint64_t{static_cast<uint32_t>(matrix_bytes) >> 4} << 16;
}

// Query and column of the warpgroup's tile that accumulator i of a thread holds.
constexpr int AccumulatorQuery(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
constexpr int AccumulatorColumn(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_LAYOUT_H_
