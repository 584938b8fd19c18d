// Exchanges between ranks through pinned host memory: slow, but any two processes can do it, also
// those that share a GPU. Each runs after the kernels queued before and waits for the other ranks.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_STAGED_EXCHANGE_H_
#define TALON_COMPUTE_CUDA_RUNTIME_STAGED_EXCHANGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/cuda/runtime/context.h"
#include "compute/ranks/ranks.h"

namespace talon::cuda {

// Rows in device memory, of values of any type.
struct DeviceRows {
  void* data = nullptr;
  int rows = 0;
  int64_t stride = 0;  // bytes
};

class StagedExchange {
 public:
  explicit StagedExchange(Context* context) : context_(context) {}

  // Ranks::GatherColumns.
  void GatherColumns(Ranks* ranks, MatrixView part, std::span<const int> bounds, MatrixView whole);
  // Rank r has values [bounds[r], bounds[r + 1]), of `value_bytes` each, of every row; then all
  // have all. REQUIRES: bounds [size + 1].
  void ShareColumns(Ranks* ranks, const DeviceRows& x, std::span<const int> bounds,
                    int value_bytes);
  // Rank owners[i] has the first `row_bytes` of row i; then all have all.
  void ShareRows(Ranks* ranks, const DeviceRows& x, int64_t row_bytes, std::span<const int> owners);

 private:
  // Pinned memory that grows to the largest request.
  uint8_t* Take(size_t bytes, Buffer* buffer) const;
  // Queues a copy between device and pinned memory.
  void Copy(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t row_bytes,
            int rows) const;

  Context* context_;
  Buffer part_, whole_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_STAGED_EXCHANGE_H_
