// Builds without NCCL.
#include "compute/cuda/runtime/rank_link.h"

namespace talon::cuda {

bool HasNccl() { return false; }

std::unique_ptr<RankLink> ConnectNccl(const Stream& /*stream*/, Ranks* /*ranks*/) {
  throw DeviceFault("this is built without NCCL");
}

}  // namespace talon::cuda
