// The largest values of rows, in ranges of columns (Backend::ChooseColumns).
#ifndef TALON_COMPUTE_CUDA_TOKENS_CHOOSE_COLUMNS_H_
#define TALON_COMPUTE_CUDA_TOKENS_CHOOSE_COLUMNS_H_

#include <cstdint>
#include <span>

#include "compute/backend.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

class ColumnChooser {
 public:
  explicit ColumnChooser(const Stream* stream) : stream_(stream) {}

  // Chooses, and sends what was chosen to the host: there when the stream has been waited for.
  void Choose(MatrixView x, std::span<const ColumnChoice> choices, UploadRing* uploads);
  std::span<const int32_t> chosen() const {
    return {static_cast<const int32_t*>(host_.data()), num_chosen_};
  }

 private:
  const Stream* stream_;
  uint64_t generation_ = 0;  // nothing that was recorded holds these addresses
  Scratch choices_{stream_, &generation_};
  Scratch device_{stream_, &generation_};
  Buffer host_;  // pinned
  size_t num_chosen_ = 0;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_CHOOSE_COLUMNS_H_
