#include "compute/cuda/attention_launch.cuh"

namespace talon::cuda {

void LaunchAttentionBF16(const Stream& stream, const AttentionArgs& args) {
  LaunchForType<__nv_bfloat16>(stream, args);
}

}  // namespace talon::cuda
