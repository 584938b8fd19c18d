#include <algorithm>

#include "compute/cuda/kv/tile_copy.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 32;
constexpr int kBatch = 4;  // loads in flight

// Elements of tiles, or their scales, in pieces.
template <typename Piece>
struct CopyArgs {
  const KvLayer* from;
  const KvLayer* to;
  int64_t from_offset;  // bytes in front of the first tile's
  int64_t to_offset;
  const int32_t* blocks;  // [lists][count]
  int count;
  int first;
  int kv_heads;
  int pieces;     // pieces of a tile
  int64_t total;  // pieces of all tiles

  // Piece i lies in list i / (2 * count * pieces), of K before those of V.
  struct Place {
    const Piece* from;
    Piece* to;
  };
  __device__ Place PlaceOf(int64_t i) const {
    const int piece = static_cast<int>(i % pieces);
    const int64_t tile = i / pieces;
    const int index = static_cast<int>(tile % count);
    const bool is_value = tile / count % 2 == 1;
    const int list = static_cast<int>(tile / count / 2);
    const int head = list % kv_heads;
    const KvLayer& source = from[list / kv_heads];
    const KvLayer& target = to[list / kv_heads];
    const int64_t block = blocks[static_cast<int64_t>(list) * count + index];
    const auto* source_bytes =
        static_cast<const uint8_t*>(is_value ? source.v_blocks : source.k_blocks);
    auto* target_bytes = static_cast<uint8_t*>(is_value ? target.v_blocks : target.k_blocks);
    const auto* source_pieces = reinterpret_cast<const Piece*>(source_bytes + from_offset);
    auto* target_pieces = reinterpret_cast<Piece*>(target_bytes + to_offset);
    return {source_pieces + (block * kv_heads + head) * pieces + piece,
            target_pieces + (int64_t{first + index} * kv_heads + head) * pieces + piece};
  }
};

template <typename Piece>
__global__ void __launch_bounds__(kThreads) CopyTilesKernel(const CopyArgs<Piece> args) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.total;
       i += kBatch * step) {
    Piece pieces[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (i + j * step < args.total) pieces[j] = *args.PlaceOf(i + j * step).from;
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (i + j * step < args.total) *args.PlaceOf(i + j * step).to = pieces[j];
    }
  }
}

}  // namespace

TileCopier::TileCopier(const Stream* stream) : stream_(stream), own_(*stream) {
  own_.uses_pdl = false;
  TALON_CUDA_CHECK(cudaStreamCreateWithFlags(&own_.handle, cudaStreamNonBlocking));
  TALON_CUDA_CHECK(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
  TALON_CUDA_CHECK(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming));
}

TileCopier::~TileCopier() {
  cudaStreamSynchronize(own_.handle);
  cudaEventDestroy(ready_);
  cudaEventDestroy(copied_);
  cudaStreamDestroy(own_.handle);
}

void TileCopier::Copy(const TileArrays& from, std::span<const int32_t> blocks, const TileArrays& to,
                      int first, UploadRing* uploads) {
  const KvShape& shape = from.shape;
  const int lists = shape.num_layers * shape.kv_heads;
  const int count = static_cast<int>(blocks.size()) / lists;
  TALON_CHECK(blocks.size() == static_cast<size_t>(lists) * count);
  TALON_CHECK(first + count <= to.shape.num_blocks);
  if (count == 0) return;
  Join();  // the list of blocks is still read
  auto* ids = static_cast<int32_t*>(blocks_.Get(blocks.size_bytes()));
  std::ranges::copy(blocks, static_cast<int32_t*>(uploads->Begin(blocks.size_bytes())));
  uploads->Send(ids, blocks.size_bytes());
  TALON_CUDA_CHECK(cudaEventRecord(ready_, stream_->handle));
  TALON_CUDA_CHECK(cudaStreamWaitEvent(own_.handle, ready_, 0));
  // `bytes` of every tile, from a byte of each array on.
  const auto copy = [&]<typename Piece>(Piece, size_t bytes, int64_t from_offset,
                                        int64_t to_offset) {
    const auto pieces = static_cast<int>(bytes / sizeof(Piece));
    Launch(own_, CopyTilesKernel<Piece>, kBlocks, kThreads, 0,
           CopyArgs<Piece>{.from = from.layers,
                           .to = to.layers,
                           .from_offset = from_offset,
                           .to_offset = to_offset,
                           .blocks = ids,
                           .count = count,
                           .first = first,
                           .kv_heads = shape.kv_heads,
                           .pieces = pieces,
                           .total = int64_t{2} * lists * count * pieces});
  };
  const size_t bytes = shape.block_size * shape.VectorBytes();
  if (bytes % sizeof(uint4) == 0) {
    copy(uint4{}, bytes, 0, 0);
  } else {
    copy(uint2{}, bytes, 0, 0);
  }
  if (shape.quantised()) {
    const auto offset = [](const KvShape& its) {
      return its.BlockVectors() * static_cast<int64_t>(its.VectorBytes());
    };
    copy(uint2{}, shape.block_size, offset(shape), offset(to.shape));
  }
  TALON_CUDA_CHECK(cudaEventRecord(copied_, own_.handle));
  copying_ = true;
}

void TileCopier::Join() {
  if (!copying_) return;
  TALON_CUDA_CHECK(cudaStreamWaitEvent(stream_->handle, copied_, 0));
  copying_ = false;
}

}  // namespace talon::cuda
