#include "compute/cuda/attention/launch.cuh"

namespace talon::cuda {

void LaunchAttentionInt8(const Stream& stream, const AttentionArgs& args) {
  LaunchForType<Int8Code>(stream, args);
}

}  // namespace talon::cuda
