// The largest values of rows, in ranges of columns (KvOps::ChooseColumns).
#ifndef TALON_COMPUTE_CUDA_TOKENS_CHOOSE_COLUMNS_H_
#define TALON_COMPUTE_CUDA_TOKENS_CHOOSE_COLUMNS_H_

#include <cstdint>
#include <span>

#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/kv_ops.h"

namespace talon::cuda {

class ColumnChooser {
 public:
  explicit ColumnChooser(const Stream* stream) : stream_(stream) {}

  // Chooses, and sends the choice to the host: it has arrived when the stream has been waited for.
  void Choose(MatrixView x, std::span<const ColumnChoice> choices, UploadRing* uploads);
  std::span<const int32_t> chosen() const {
    return {static_cast<const int32_t*>(host_.data()), num_chosen_};
  }

 private:
  const Stream* stream_;
  uint64_t generation_ = 0;  // no CUDA graph holds these addresses
  Scratch choices_{stream_, &generation_};
  Scratch device_{stream_, &generation_};
  Buffer host_;  // pinned
  size_t num_chosen_ = 0;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_CHOOSE_COLUMNS_H_
