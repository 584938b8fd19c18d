#include "compute/cuda/runtime/context.h"

#include <algorithm>

#include "compute/cuda/runtime/wait.h"

namespace talon::cuda {

void Context::Synchronize() {
  Wait(stream_);
  arrived_ = true;
}

void Context::Copy(void* to, const void* from, size_t bytes) {
  // The copy itself may wait for what is queued, without a deadline.
  if (stream_.link != nullptr) Wait(stream_);
  TALON_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.handle));
  Synchronize();
}

const int32_t* Context::UploadIndices(std::span<const int32_t> first,
                                      std::span<const int32_t> second) {
  const size_t bytes = (first.size() + second.size()) * sizeof(int32_t);
  auto* host = static_cast<int32_t*>(uploads_.Begin(bytes));
  std::copy(first.begin(), first.end(), host);
  std::copy(second.begin(), second.end(), host + first.size());
  auto* device = indices_.GetAs<int32_t>(first.size() + second.size());
  uploads_.Send(device, bytes);
  return device;
}

}  // namespace talon::cuda
