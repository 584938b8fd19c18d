// Copies blocks of partial views beside other work (KvOps::CopyTiles): on a stream of its own, by
// few multiprocessors, because the bus is slow and the others are busy.
#ifndef TALON_COMPUTE_CUDA_KV_TILE_COPY_H_
#define TALON_COMPUTE_CUDA_KV_TILE_COPY_H_

#include <cstdint>
#include <span>

#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/kv_view.h"

namespace talon::cuda {

// Source or target of a copy; the layers are in device memory.
struct TileArrays {
  const KvLayer* layers = nullptr;
  KvShape shape;
};

class TileCopier {
 public:
  explicit TileCopier(const Stream* stream);
  ~TileCopier();
  TileCopier(const TileCopier&) = delete;
  TileCopier& operator=(const TileCopier&) = delete;

  void Copy(const TileArrays& from, std::span<const int32_t> blocks, const TileArrays& to,
            int first, UploadRing* uploads);
  // The main stream waits for what was copied.
  void Join();

 private:
  const Stream* stream_;
  Stream own_;
  cudaEvent_t ready_ = nullptr;  // the main stream has written what is copied
  cudaEvent_t copied_ = nullptr;
  bool copying_ = false;
  uint64_t generation_ = 0;  // no CUDA graph holds the address
  Scratch blocks_{stream_, &generation_};
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_KV_TILE_COPY_H_
