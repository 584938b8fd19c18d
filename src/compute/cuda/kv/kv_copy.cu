#include <type_traits>

#include "base/check.h"
#include "compute/cuda/kv/kv_ops.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 128;

// A cache's arrays seen as vectors of `pieces` pieces: 16 bytes, or 2 or 1 where that does
// not divide them.
struct CopyArgs {
  const KvLayer* layers;
  const int32_t* from;
  const int32_t* to;
  int count;
  int kv_heads;
  int block_size;
  int pieces;  // in a head's vector of one token
  // Bytes from the start of blocks and staging to their scales; 0: there are none.
  int64_t block_scales;
  int64_t staged_scales;
};

__device__ __forceinline__ uint8_t* ScalesOf(void* array, int64_t offset) {
  return static_cast<uint8_t*>(array) + offset;
}

__device__ __forceinline__ int64_t SlotVector(const CopyArgs& args, int slot, int head) {
  const int64_t block = slot / args.block_size;
  return (block * args.kv_heads + head) * args.block_size + slot % args.block_size;
}
__device__ __forceinline__ int64_t StagedVector(const CopyArgs& args, int row, int head) {
  return static_cast<int64_t>(row) * args.kv_heads + head;
}

template <typename Piece>
__device__ __forceinline__ void CommitRow(const CopyArgs& args, const KvLayer& layer, int row,
                                          int slot) {
  for (int i = threadIdx.x; i < 2 * args.kv_heads * args.pieces; i += kThreads) {
    const bool is_value = i >= args.kv_heads * args.pieces;
    const int piece = i % args.pieces;
    const int head = i / args.pieces % args.kv_heads;
    const auto* from = static_cast<const Piece*>(is_value ? layer.v_staged : layer.k_staged);
    auto* to = static_cast<Piece*>(is_value ? layer.v_blocks : layer.k_blocks);
    to[SlotVector(args, slot, head) * args.pieces + piece] =
        from[StagedVector(args, row, head) * args.pieces + piece];
  }
  if (args.block_scales == 0) return;
  for (int i = threadIdx.x; i < 2 * args.kv_heads; i += kThreads) {
    const int head = i % args.kv_heads;
    const uint8_t* from = ScalesOf(i == head ? layer.k_staged : layer.v_staged, args.staged_scales);
    uint8_t* to = ScalesOf(i == head ? layer.k_blocks : layer.v_blocks, args.block_scales);
    to[SlotVector(args, slot, head)] = from[StagedVector(args, row, head)];
  }
}

// A block for each (row, layer).
template <typename Piece>
__global__ void CommitKernel(const CopyArgs args) {
  PdlTrigger();
  const KvLayer layer = args.layers[blockIdx.y];
  const int row = args.from[blockIdx.x];
  const int slot = args.to[blockIdx.x];
  PdlWait();
  CommitRow<Piece>(args, layer, row, slot);
}

template <typename Piece>
__global__ void CommitFewKernel(const CopyArgs args, const __grid_constant__ FewIndices rows,
                                const __grid_constant__ FewIndices slots) {
  PdlTrigger();
  const KvLayer layer = args.layers[blockIdx.y];
  PdlWait();
  CommitRow<Piece>(args, layer, rows.at[blockIdx.x], slots.at[blockIdx.x]);
}

// A block for each (kv head, layer, K or V). A thread copies the same pieces of every vector, one
// vector after the other, so that a copy sees what the copies before it wrote.
template <typename Piece, bool Staged>
__global__ void CopyKernel(const CopyArgs args) {
  PdlTrigger();
  const KvLayer layer = args.layers[blockIdx.y];
  const int head = blockIdx.x;
  const bool is_value = blockIdx.z == 1;
  void* array = Staged ? (is_value ? layer.v_staged : layer.k_staged)
                       : (is_value ? layer.v_blocks : layer.k_blocks);
  auto* data = static_cast<Piece*>(array);
  const auto vector_of = [&](int place) {
    return Staged ? StagedVector(args, place, head) : SlotVector(args, place, head);
  };
  PdlWait();
  if (args.block_scales != 0 && threadIdx.x == kThreads - 1) {
    uint8_t* scales = ScalesOf(array, Staged ? args.staged_scales : args.block_scales);
    for (int i = 0; i < args.count; ++i) {
      scales[vector_of(args.to[i])] = scales[vector_of(args.from[i])];
    }
  }
  for (int piece = threadIdx.x; piece < args.pieces; piece += kThreads) {
    for (int i = 0; i < args.count; ++i) {
      data[vector_of(args.to[i]) * args.pieces + piece] =
          data[vector_of(args.from[i]) * args.pieces + piece];
    }
  }
}

// A block for each (kv head, layer, K or V).
template <typename Piece>
__global__ void CopyBlockKernel(const CopyArgs args, int from_block, int to_block) {
  PdlTrigger();
  const KvLayer layer = args.layers[blockIdx.y];
  const int head = blockIdx.x;
  void* array = blockIdx.z == 1 ? layer.v_blocks : layer.k_blocks;
  auto* data = static_cast<Piece*>(array);
  const int64_t from = SlotVector(args, from_block * args.block_size, head);
  const int64_t to = SlotVector(args, to_block * args.block_size, head);
  PdlWait();
  for (int i = threadIdx.x; i < args.count * args.pieces; i += kThreads) {
    data[to * args.pieces + i] = data[from * args.pieces + i];
  }
  if (args.block_scales == 0) return;
  uint8_t* scales = ScalesOf(array, args.block_scales);
  for (int i = threadIdx.x; i < args.count; i += kThreads) scales[to + i] = scales[from + i];
}

// Calls launch(a piece, args with `pieces` of that size).
template <typename F>
void WithPieces(const KvShape& shape, CopyArgs args, const F& launch) {
  args.kv_heads = shape.kv_heads;
  args.block_size = shape.block_size;
  const int bytes = static_cast<int>(shape.VectorBytes());
  if (shape.quantised()) {
    args.block_scales = shape.BlockVectors() * bytes;
    args.staged_scales = shape.StagedVectors() * bytes;
  }
  if (bytes % sizeof(uint4) == 0) {
    args.pieces = bytes / static_cast<int>(sizeof(uint4));
    return launch(uint4{}, args);
  }
  if (bytes % sizeof(uint16_t) == 0) {
    args.pieces = bytes / static_cast<int>(sizeof(uint16_t));
    return launch(uint16_t{}, args);
  }
  args.pieces = bytes;
  launch(uint8_t{}, args);
}

}  // namespace

void CommitRows(const Stream& stream, const KvShape& shape, const KvLayer* layers, int num_layers,
                const int32_t* rows, const int32_t* slots, int count) {
  if (count == 0 || num_layers == 0) return;
  WithPieces(shape, {layers, rows, slots, count}, [&](auto piece, const CopyArgs& args) {
    Launch(stream, &CommitKernel<decltype(piece)>, dim3(count, num_layers), kThreads, 0, args);
  });
}

void CommitFewRows(const Stream& stream, const KvShape& shape, const KvLayer* layers,
                   int num_layers, const FewIndices& rows, const FewIndices& slots, int count) {
  if (count == 0 || num_layers == 0) return;
  WithPieces(shape, {layers, nullptr, nullptr, count}, [&](auto piece, const CopyArgs& args) {
    Launch(stream, &CommitFewKernel<decltype(piece)>, dim3(count, num_layers), kThreads, 0, args,
           rows, slots);
  });
}

void CopySlots(const Stream& stream, const KvShape& shape, const KvLayer* layers,
               const int32_t* from, const int32_t* to, int count) {
  if (count == 0) return;
  const dim3 grid(shape.kv_heads, shape.num_layers, 2);
  WithPieces(shape, {layers, from, to, count}, [&](auto piece, const CopyArgs& args) {
    Launch(stream, &CopyKernel<decltype(piece), false>, grid, kThreads, 0, args);
  });
}

void CopyStaged(const Stream& stream, const KvShape& shape, const KvLayer* layers,
                const int32_t* from, const int32_t* to, int count) {
  if (count == 0) return;
  const dim3 grid(shape.kv_heads, shape.num_layers, 2);
  WithPieces(shape, {layers, from, to, count}, [&](auto piece, const CopyArgs& args) {
    Launch(stream, &CopyKernel<decltype(piece), true>, grid, kThreads, 0, args);
  });
}

void CopyBlock(const Stream& stream, const KvShape& shape, const KvLayer* layers, int from, int to,
               int tokens) {
  if (tokens == 0) return;
  const dim3 grid(shape.kv_heads, shape.num_layers, 2);
  WithPieces(shape, {layers, nullptr, nullptr, tokens}, [&](auto piece, const CopyArgs& args) {
    Launch(stream, &CopyBlockKernel<decltype(piece)>, grid, kThreads, 0, args, from, to);
  });
}

}  // namespace talon::cuda
