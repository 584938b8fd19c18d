#include "compute/cuda/runtime/rank_link.h"

#include <fmt/core.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace talon::cuda {
namespace {

// What a rank says of its GPU. Only bytes, so that equal ones compare equal.
struct RankGpu {
  uint8_t wants_nccl = 0;
  std::array<char, sizeof(cudaUUID_t)> id{};
  std::array<char, 64> host{};

  bool IsSameGpu(const RankGpu& other) const { return id == other.id && host == other.host; }
};

// NCCL takes a GPU for another one where this variable names another host. So do we: two ranks that
// share a GPU can be linked for a test.
std::string_view NcclHost() {
  const char* host = std::getenv("NCCL_HOSTID");
  return host == nullptr ? "" : host;
}

}  // namespace

std::string WhyNoLink(const Stream& stream, Ranks* ranks, bool wanted) {
  cudaDeviceProp properties;
  TALON_CUDA_CHECK(cudaGetDeviceProperties(&properties, stream.device));
  std::vector<RankGpu> gpus(ranks->size());
  RankGpu& own = gpus[ranks->rank()];
  own.wants_nccl = wanted && HasNccl() ? 1 : 0;
  std::memcpy(own.id.data(), properties.uuid.bytes, own.id.size());
  NcclHost().copy(own.host.data(), own.host.size());
  std::vector<int64_t> bounds;
  for (int rank = 0; rank <= ranks->size(); ++rank) {
    bounds.push_back(rank * static_cast<int64_t>(sizeof(RankGpu)));
  }
  ranks->AllGather(reinterpret_cast<uint8_t*>(gpus.data()), bounds);
  if (!HasNccl()) return "this is built without NCCL";
  for (int rank = 0; rank < ranks->size(); ++rank) {
    if (gpus[rank].wants_nccl == 0) return fmt::format("rank {} goes without NCCL", rank);
    for (int other = 0; other < rank; ++other) {
      if (gpus[rank].IsSameGpu(gpus[other])) {
        return fmt::format("ranks {} and {} share a GPU", other, rank);
      }
    }
  }
  return "";
}

}  // namespace talon::cuda
