#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/cuda/runtime/device_pass.h"
#include "compute/cuda/tokens/best_first.h"
#include "compute/cuda/tokens/few.cuh"
#include "compute/cuda/tokens/top_k_row.cuh"
#include "compute/cuda/tokens/tree_row.cuh"

namespace talon::cuda {
namespace {

constexpr int kMostNodes = 256;
constexpr int kMostBlockWidth = 32;
constexpr int kMostEntries = 1024;  // a tree has
constexpr int kGrowThreads = 128;

// A block of one warp for each row of logits: (block, depth).
__global__ void RankBlocksKernel(const RankedChunks ranked,
                                 const __grid_constant__ Few<BlockRows> few, int levels, int width,
                                 TopKEntry* entries) {
  __shared__ uint64_t best[kMostBlockWidth];
  PdlTrigger();
  PdlWait();
  const BlockRows& block = few.at[blockIdx.x];
  const int depth = blockIdx.y;
  if (depth >= block.depth) return;
  RankRow(ranked, block.first + depth, width, best,
          entries + (static_cast<int64_t>(block.tree) * levels + depth) * width);
}

struct GrowArgs {
  int trees;
  int levels;  // rankings of a tree
  int width;
  const TopKEntry* entries;
  const int32_t* token_ids;
  DevicePlan plan;
  TopKEntry* rankings;  // host memory: all entries go there
};

// A tree's nodes as they are taken, the root first. A node has one candidate at a time, its best
// child that was not taken yet: the next one is never better.
struct GrownTree {
  float score[kMostNodes];
  int parent[kMostNodes];
  int depth[kMostNodes];
  int entry[kMostNodes];     // its own among the tree's entries
  int next[kMostNodes];      // its candidate's
  uint64_t key[kMostNodes];  // its candidate's; 0: none
  int row[kMostNodes];       // by depth, then as taken
  int count;
};

__device__ void SetCandidate(const TopKEntry* entries, int width, const TreePlace& place, int node,
                             int entry, GrownTree& tree) {
  const int depth = tree.depth[node];
  tree.next[node] = entry;
  tree.key[node] = 0;
  if (depth >= place.levels || entry >= (depth + 1) * width) return;
  const float score = tree.score[node] + entries[entry].log_prob;
  const bool possible = score > -INFINITY && score >= place.min_score;  // not so: NaN
  if (possible) tree.key[node] = OrderedKey(score, node);
}

// Grows the tree, by one warp.
__device__ void GrowTree(const TopKEntry* entries, int width, const TreePlace& place,
                         GrownTree& tree) {
  const int lane = threadIdx.x;
  if (lane == 0) {
    tree.score[0] = 0;
    tree.parent[0] = -1;
    tree.depth[0] = 0;
    SetCandidate(entries, width, place, 0, 0, tree);
  }
  int count = 1;
  for (; count < place.nodes; ++count) {
    __syncwarp();
    uint64_t best = 0;
    for (int node = lane; node < count; node += 32) best = max(best, tree.key[node]);
    best = WarpMaxKey(best);
    if (best == 0) break;
    if (lane > 0) continue;
    const int parent = IndexOfKey(best);
    const int entry = tree.next[parent];
    tree.score[count] = tree.score[parent] + entries[entry].log_prob;
    tree.parent[count] = parent;
    tree.depth[count] = tree.depth[parent] + 1;
    tree.entry[count] = entry;
    SetCandidate(entries, width, place, parent, entry + 1, tree);
    SetCandidate(entries, width, place, count, tree.depth[count] * width, tree);
  }
  if (lane == 0) tree.count = count;
}

// A thread block for each place.
__global__ void __launch_bounds__(kGrowThreads)
    GrowTreesKernel(const __grid_constant__ GrowArgs args,
                    const __grid_constant__ Few<TreePlace> places) {
  __shared__ GrownTree tree;
  __shared__ TopKEntry entries[kMostEntries];
  PdlWait();
  const TreePlace& place = places.at[blockIdx.x];
  const int each = args.levels * args.width;
  for (int i = threadIdx.x; i < each; i += blockDim.x) {
    entries[i] = args.entries[static_cast<int64_t>(place.tree) * each + i];
  }
  __syncthreads();
  if (threadIdx.x < 32) GrowTree(entries, args.width, place, tree);
  __syncthreads();
  for (int node = threadIdx.x; node < tree.count; node += blockDim.x) {
    int before = 0;
    for (int other = 0; other < tree.count; ++other) {
      before += tree.depth[other] < tree.depth[node] ||
                (tree.depth[other] == tree.depth[node] && other < node);
    }
    tree.row[node] = before;
  }
  __syncthreads();
  for (int node = 1 + threadIdx.x; node < tree.count; node += blockDim.x) {
    const_cast<int32_t*>(args.plan.tokens)[place.root_row + tree.row[node]] =
        args.token_ids[entries[tree.entry[node]].id];
    uint64_t* mask = StartRow(args.plan, place, tree.row[node], tree.depth[node]);
    for (int at = node; at > 0; at = tree.parent[at]) AddNode(place, tree.row[at], mask);
  }
  RepeatRoot(args.plan, place, tree.count);
  __threadfence();  // what comes next may read the pass before it waits
  const int all = args.trees * each;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += gridDim.x * blockDim.x) {
    args.rankings[i] = args.entries[i];
  }
}

}  // namespace

Result<std::unique_ptr<CudaBestFirstSearch>> CudaBestFirstSearch::Create(
    Context* context, const BestFirstLimits& limits, std::span<const int32_t> token_ids) {
  std::unique_ptr<CudaBestFirstSearch> search;
  if (limits.nodes > kMostNodes || limits.width > kMostBlockWidth ||
      limits.depth * limits.width > kMostEntries) {
    return Result<std::unique_ptr<CudaBestFirstSearch>>(std::move(search));
  }
  search.reset(new CudaBestFirstSearch(context, limits));
  TALON_RETURN_IF_ERROR(search->Allocate(token_ids));
  return Result<std::unique_ptr<CudaBestFirstSearch>>(std::move(search));
}

CudaBestFirstSearch::~CudaBestFirstSearch() {
  if (arrived_ != nullptr) cudaEventDestroy(arrived_);
}

Status CudaBestFirstSearch::Allocate(std::span<const int32_t> token_ids) {
  UseDevice(context_->stream());
  TALON_CUDA_CHECK(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming));
  const size_t bytes = NumEntries(limits_.trees) * sizeof(TopKEntry);
  TALON_ASSIGN_OR_RETURN(token_ids_, AllocateDevice(stream(), token_ids.size_bytes()));
  TALON_ASSIGN_OR_RETURN(entries_, AllocateDevice(stream(), bytes));
  TALON_ASSIGN_OR_RETURN(rankings_, AllocatePinned(bytes));
  context_->Copy(token_ids_.data(), token_ids.data(), token_ids.size_bytes());
  return OkStatus();
}

void CudaBestFirstSearch::Rank(std::span<const BlockRows> blocks, MatrixView logits) {
  const CudaClock::Batch batch(context_->clock());
  if (sent_) trees_ = 0;
  sent_ = false;
  for (const BlockRows& block : blocks) {
    TALON_CHECK(block.tree < limits_.trees && block.depth <= limits_.depth);
    TALON_CHECK(block.first + block.depth <= logits.rows);
    trees_ = std::max(trees_, block.tree + 1);
  }
  void* scratch = top_k_scratch_.Get(TopKScratchBytes(logits.rows, logits.cols, limits_.width));
  const RankedChunks ranked = RankChunks(stream(), logits, limits_.width, scratch);
  ForFew(blocks, [&](const Few<BlockRows>& few, int, int count) {
    Launch(stream(), RankBlocksKernel, dim3(count, limits_.depth), 32, 0, ranked, few,
           limits_.depth, limits_.width, static_cast<TopKEntry*>(entries_.data()));
  });
}

void CudaBestFirstSearch::LoadTrees(Pass* pass, std::span<const TreePlace> places) {
  const CudaClock::Batch batch(context_->clock());
  const DevicePlan& plan = PlanOf(*pass);
  for (const TreePlace& place : places) {
    TALON_CHECK(place.tree < trees_ && place.levels <= limits_.depth);
    TALON_CHECK(place.nodes <= limits_.nodes && place.root_row + place.nodes <= plan.rows);
    TALON_CHECK(place.above + place.nodes <= 64 * plan.mask_words);
  }
  // Kernels may read a pass's arrays before those in front of them are done (attention.h), so
  // nothing may start early here.
  Stream in_order = stream();
  in_order.uses_pdl = false;
  const GrowArgs args{.trees = trees_,
                      .levels = limits_.depth,
                      .width = limits_.width,
                      .entries = static_cast<const TopKEntry*>(entries_.data()),
                      .token_ids = static_cast<const int32_t*>(token_ids_.data()),
                      .plan = plan,
                      .rankings = static_cast<TopKEntry*>(rankings_.data())};
  ForFew(places, [&](const Few<TreePlace>& few, int, int count) {
    Launch(in_order, GrowTreesKernel, count, kGrowThreads, 0, args, few);
  });
  sent_ = !places.empty();
  if (sent_) TALON_CUDA_CHECK(cudaEventRecord(arrived_, stream().handle));
}

std::span<const TopKEntry> CudaBestFirstSearch::Read() {
  const size_t count = NumEntries(trees_);
  if (!sent_) {
    TALON_CUDA_CHECK(cudaMemcpyAsync(rankings_.data(), entries_.data(), count * sizeof(TopKEntry),
                                     cudaMemcpyDeviceToHost, stream().handle));
    TALON_CUDA_CHECK(cudaEventRecord(arrived_, stream().handle));
    sent_ = true;
  }
  TALON_CUDA_CHECK(cudaEventSynchronize(arrived_));
  return {static_cast<const TopKEntry*>(rankings_.data()), count};
}

}  // namespace talon::cuda
