#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "compute/cuda/tokens/few.cuh"
#include "compute/cuda/tokens/top_k.h"
#include "compute/cuda/tokens/tree_row.cuh"
#include "compute/cuda/tokens/tree_rows.h"

namespace talon::cuda {
namespace {

constexpr int kMostThreads = 512;  // fewer where there are fewer candidates: barriers are quicker
constexpr int kWords = kMostCandidates / 32;

// The drafts that a tree keeps, as a set of candidates: a kept one's node is 1 + how many come
// before it.
struct KeptSet {
  uint32_t bits[kWords];
  int before[kWords];  // kept candidates of the words before

  __device__ int NodeOf(int candidate) const {
    const uint32_t lower = bits[candidate / 32] & ((1u << (candidate % 32)) - 1);
    return 1 + before[candidate / 32] + __popc(lower);
  }
  __device__ bool Has(int candidate) const {
    return (bits[candidate / 32] >> (candidate % 32) & 1) != 0;
  }
};

// The work of one thread block.
struct TreeBlock {
  const TreeRowsCall& call;
  TreePlace place;
  int count;       // candidates
  uint64_t* keys;  // their keys

  __device__ TreeBlock(const TreeRowsCall& call_in, const TreePlace& place_in)
      : call(call_in), place(place_in) {
    count = call.layout.NumCandidates(place.levels);
    keys = call.keys + static_cast<size_t>(place.tree) * call.layout.NumCandidates(call.levels);
  }
  __device__ TopKEntry Entry(int candidate) const {
    return call.entries[call.layout.EntryOf(place.tree, candidate)];
  }
  __device__ float ScoreOf(int candidate) const {
    const float own = Entry(candidate).log_prob;
    if (candidate < call.layout.width) return own;
    return call.beam_scores[call.layout.ParentBeam(place.tree, candidate)] + own;
  }
  __device__ int ParentOf(int candidate) const {
    return call.beam_candidates[call.layout.ParentBeam(place.tree, candidate)];
  }
};

// Candidates that can be kept have keys above 0. Returns how many they are.
__device__ int MakeKeys(const TreeBlock& block) {
  int possible = 0;
  for (int first = 0; first < block.count; first += blockDim.x) {
    const int candidate = first + threadIdx.x;
    uint64_t key = 0;
    if (candidate < block.count) {
      const float score = block.ScoreOf(candidate);
      const bool kept = score > -INFINITY && score >= block.place.min_score;
      key = kept ? CandidateKey(OrderedBits(score), candidate) : 0;
      block.keys[candidate] = key;
    }
    possible += __syncthreads_count(key != 0);
  }
  return possible;
}

__device__ int CountFrom(const TreeBlock& block, uint64_t least) {
  int total = 0;
  for (int first = 0; first < block.count; first += blockDim.x) {
    const int candidate = first + threadIdx.x;
    total += __syncthreads_count(candidate < block.count && block.keys[candidate] >= least);
  }
  return total;
}

// The key that exactly `wanted` candidates reach: keys differ. REQUIRES: 1 <= wanted <= possible.
__device__ uint64_t LeastKept(const TreeBlock& block, int wanted) {
  uint64_t least = 0;
  for (int bit = kCandidateBits - 1; bit >= 0; --bit) {
    const uint64_t higher = least | uint64_t{1} << bit;
    if (CountFrom(block, higher) >= wanted) least = higher;
  }
  return least;
}

__device__ void FillSet(const TreeBlock& block, uint64_t least, KeptSet& kept) {
  const int words = CeilDiv(block.count, 32);
  for (int first = 0; first < words * 32; first += blockDim.x) {
    const int candidate = first + threadIdx.x;
    const bool is_kept = candidate < block.count && block.keys[candidate] >= least;
    const uint32_t bits = __ballot_sync(0xffffffffu, is_kept);
    if (threadIdx.x % 32 == 0 && candidate < words * 32) kept.bits[candidate / 32] = bits;
  }
  __syncthreads();
  for (int word = threadIdx.x; word < words; word += blockDim.x) {
    int before = 0;
    for (int i = 0; i < word; ++i) before += __popc(kept.bits[i]);
    kept.before[word] = before;
  }
  __syncthreads();
}

__device__ void WriteNode(const TreeBlock& block, const KeptSet& kept, int candidate) {
  const BeamLayout& layout = block.call.layout;
  const int node = kept.NodeOf(candidate);
  const int row = block.place.root_row + node;
  const_cast<int32_t*>(block.call.plan.tokens)[row] =
      block.call.token_ids[block.Entry(candidate).id];
  uint64_t* mask = StartRow(block.call.plan, block.place, node, layout.DepthOf(candidate));
  for (int at = candidate;;) {
    AddNode(block.place, kept.NodeOf(at), mask);
    if (at < layout.width) break;
    at = block.ParentOf(at);
  }
}

__global__ void __launch_bounds__(kMostThreads)
    TreeRowsKernel(const __grid_constant__ TreeRowsCall call,
                   const __grid_constant__ Few<TreePlace> places) {
  __shared__ KeptSet kept;
  PdlWait();
  const TreeBlock block(call, places.at[blockIdx.x]);
  const TreePlace& place = block.place;
  const int wanted = min(place.nodes - 1, MakeKeys(block));
  FillSet(block, wanted > 0 ? LeastKept(block, wanted) : ~uint64_t{0}, kept);
  for (int candidate = threadIdx.x; candidate < block.count; candidate += blockDim.x) {
    if (kept.Has(candidate)) WriteNode(block, kept, candidate);
  }
  RepeatRoot(call.plan, place, 1 + wanted);
  __threadfence();  // what comes next may read the pass before it waits
  const size_t entries = call.layout.NumEntries(call.levels);
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < entries; i += gridDim.x * blockDim.x) {
    call.rankings[i] = call.entries[i];
  }
}

}  // namespace

void WriteTreeRows(const Stream& stream, std::span<const TreePlace> places,
                   const TreeRowsCall& call) {
  // Kernels may read a pass's arrays before those in front of them are done (attention.h), so
  // nothing may start early here.
  Stream in_order = stream;
  in_order.uses_pdl = false;
  const int candidates = call.layout.NumCandidates(call.levels);
  const int threads = std::min(RoundUp(candidates, 32), kMostThreads);
  ForFew(places, [&](const Few<TreePlace>& few, int, int count) {
    Launch(in_order, TreeRowsKernel, count, threads, 0, call, few);
  });
}

}  // namespace talon::cuda
