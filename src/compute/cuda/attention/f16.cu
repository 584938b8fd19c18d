#include "compute/cuda/attention/launch.cuh"

namespace talon::cuda {

void LaunchAttentionF16(const Stream& stream, const AttentionArgs& args) {
  LaunchForType<__half>(stream, args);
}

}  // namespace talon::cuda
