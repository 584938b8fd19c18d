// Exchanges between the GPUs of several ranks. Rows are packed, one rank's behind the other's, in
// staging memory that all ranks lay out alike, then sent and unpacked.
//
// With a link the staging memory is the device's, and all of it is queued like other ops. Without
// one it is pinned host memory, which the ranks send: slow, as the host waits for the kernels
// queued before and for the other ranks, but any two processes can do it.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_RANK_EXCHANGE_H_
#define TALON_COMPUTE_CUDA_RUNTIME_RANK_EXCHANGE_H_

#include <cstdint>
#include <span>

#include "compute/cuda/runtime/context.h"
#include "compute/cuda/runtime/rank_link.h"
#include "compute/ranks/ranks.h"

namespace talon::cuda {

// Rows in device memory, of values of any type.
struct DeviceRows {
  void* data = nullptr;
  int rows = 0;
  int64_t stride = 0;  // bytes
};

class RankExchange {
 public:
  explicit RankExchange(Context* context) : context_(context) {}

  // Null: through the host. The link must outlive the exchange or be replaced.
  void SetLink(RankLink* link) { link_ = link; }

  // Ranks::GatherColumns. Waits for the other ranks, unless it is captured in a CUDA graph.
  void GatherColumns(Ranks* ranks, MatrixView part, std::span<const int> bounds, MatrixView whole);
  // Rank r has values [bounds[r], bounds[r + 1]), of `value_bytes` each, of every row; then all
  // have all. REQUIRES: bounds [size + 1].
  void ShareColumns(Ranks* ranks, const DeviceRows& x, std::span<const int> bounds,
                    int value_bytes);
  // Rank owners[i] has row i; then all have all. Host span, so it is not captured.
  void ShareRows(Ranks* ranks, MatrixView x, std::span<const int> owners);

 private:
  // Staging memory that grows to the largest request.
  uint8_t* Take(size_t bytes);
  void AllGather(Ranks* ranks, uint8_t* staged, std::span<const int64_t> bounds);
  // Queues a copy between device and staging memory.
  void Copy(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t row_bytes,
            int rows) const;

  Context* context_;
  RankLink* link_ = nullptr;
  Buffer pinned_;
  Scratch device_{&context_->stream(), context_->generation()};
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_RANK_EXCHANGE_H_
