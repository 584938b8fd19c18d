#include "compute/cuda/attention/launch.cuh"

namespace talon::cuda {

void LaunchAttentionFp8(const Stream& stream, const AttentionArgs& args) {
  LaunchForType<Fp8Code>(stream, args);
}

}  // namespace talon::cuda
