#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "compute/cuda/runtime/device_pass.h"
#include "compute/cuda/tokens/beam_search.h"
#include "compute/cuda/tokens/few.cuh"
#include "compute/cuda/tokens/top_k_row.cuh"
#include "compute/cuda/tokens/tree_rows.h"

namespace talon::cuda {
namespace {

constexpr int kMostWidth = 32;  // width * width candidates are 32 of each lane
constexpr int kRowThreads = 128;
constexpr int kExpandThreads = 256;

__device__ __forceinline__ void CopyRow(const float* from, float* to, int cols) {
  for (int i = threadIdx.x; i < cols; i += blockDim.x) to[i] = from[i];
}

// A block for each row of logits from `first` on.
__global__ void RankRootsKernel(const RankedChunks ranked,
                                const __grid_constant__ Few<int32_t> slots, int first, int width,
                                TopKEntry* entries, MatrixView outputs, MatrixView kept) {
  __shared__ uint64_t best[kMostWidth];
  PdlTrigger();
  PdlWait();
  const int row = first + blockIdx.x;
  const int64_t slot = slots.at[blockIdx.x];
  if (threadIdx.x < 32) RankRow(ranked, row, width, best, entries + slot * width);
  CopyRow(outputs.data + row * outputs.stride, kept.data + slot * kept.stride, outputs.cols);
}

// A warp for each tree from `first` on: the root's successors are the first beam, in their order.
__global__ void StartBeamKernel(BeamLayout layout, const __grid_constant__ Few<BeamRoot> few,
                                int first, const TopKEntry* ranked, const int32_t* token_ids,
                                TopKEntry* entries, BeamRoot* roots, Beams beams) {
  PdlTrigger();
  PdlWait();
  const int tree = first + blockIdx.x;
  const BeamRoot root = few.at[blockIdx.x];
  if (threadIdx.x == 0) roots[tree] = root;
  for (int n = threadIdx.x; n < layout.width; n += 32) {
    const TopKEntry entry = ranked[root.slot * layout.width + n];
    entries[layout.EntryOf(tree, n)] = entry;
    const size_t at = layout.BeamOf(1, tree, n);
    beams.tokens[at] = token_ids[entry.id];
    beams.parents[at] = root.slot;
    beams.candidates[at] = n;
    beams.scores[at] = entry.log_prob;
    for (int w = 0; w < beams.words; ++w) beams.masks[at * beams.words + w] = 0;
    beams.masks[at * beams.words] = uint64_t{1} << n;
  }
}

struct LoadArgs {
  const int32_t* tokens;  // [rows], as the other arrays of the beam
  const int32_t* parents;
  const uint64_t* masks;
  int words;
  int32_t* pass_tokens;
  uint64_t* pass_masks;
  int pass_words;
  MatrixView kept;
  MatrixView inputs;
};

// A block for each row.
__global__ void LoadBeamKernel(LoadArgs args) {
  PdlWait();
  const int row = blockIdx.x;
  if (threadIdx.x == 0) args.pass_tokens[row] = args.tokens[row];
  for (int w = threadIdx.x; w < args.pass_words; w += blockDim.x) {
    args.pass_masks[row * args.pass_words + w] =
        w < args.words ? args.masks[row * args.words + w] : 0;
  }
  CopyRow(args.kept.data + args.parents[row] * args.kept.stride,
          args.inputs.data + row * args.inputs.stride, args.inputs.cols);
  __threadfence();  // what comes next may read the pass before it waits
}

struct ExpandArgs {
  BeamLayout layout;
  RankedChunks ranked;
  TopKEntry* entries;  // the level's: [trees][width][width]
  const int32_t* token_ids;
  const BeamRoot* roots;
  int level;  // the present beam's
  Beams beams;
  MatrixView outputs;
  MatrixView kept;
};

// The best `width` of a tree's candidates, the higher score first, then the earlier. Impossible
// ones may be among them, behind the others. By one warp.
__device__ void ExpandTree(const ExpandArgs& args, int tree) {
  const int width = args.layout.width;
  const int count = width * width;
  const size_t beam = args.layout.BeamOf(args.level, tree, 0);
  const size_t next = args.layout.BeamOf(args.level + 1, tree, 0);
  const int first_row = args.roots[tree].first_row + (args.level - 1) * width;
  const int first_candidate = args.layout.FirstOfLevel(args.level + 1);
  const Beams& beams = args.beams;
  const TopKEntry* entries = args.entries + tree * count;
  uint64_t keys[kMostWidth];
#pragma unroll
  for (int i = 0; i < kMostWidth; ++i) {
    const int at = i * 32 + threadIdx.x;
    keys[i] = 0;
    if (at < count) {
      keys[i] = OrderedKey(beams.scores[beam + at / width] + entries[at].log_prob, at);
    }
  }
  for (int n = 0; n < width; ++n) {
    uint64_t best = 0;
#pragma unroll
    for (int i = 0; i < kMostWidth; ++i) best = keys[i] > best ? keys[i] : best;
    best = WarpMaxKey(best);
#pragma unroll
    for (int i = 0; i < kMostWidth; ++i) {
      if (keys[i] == best) keys[i] = 0;
    }
    const int at = IndexOfKey(best);
    const int slot = at / width;
    if (threadIdx.x == 0) {
      beams.tokens[next + n] = args.token_ids[entries[at].id];
      beams.parents[next + n] = first_row + slot;
      beams.candidates[next + n] = first_candidate + at;
      beams.scores[next + n] = beams.scores[beam + slot] + entries[at].log_prob;
    }
    const int node = args.level * width + n;  // its own number in the tree
    for (int w = threadIdx.x; w < beams.words; w += 32) {
      const uint64_t own = w == node / 64 ? uint64_t{1} << (node % 64) : 0;
      beams.masks[(next + n) * beams.words + w] =
          beams.masks[(beam + slot) * beams.words + w] | own;
    }
  }
}

// Blocks (tree, 0) rank the beam's rows and form the next one, (tree, 1 + n) keep its outputs.
__global__ void __launch_bounds__(kExpandThreads)
    ExpandBeamKernel(const __grid_constant__ ExpandArgs args) {
  __shared__ uint64_t best[kExpandThreads / 32][kMostWidth];
  PdlTrigger();
  PdlWait();
  const int tree = blockIdx.x;
  const int width = args.layout.width;
  if (blockIdx.y > 0) {
    const int n = blockIdx.y - 1;
    const int64_t to = args.roots[tree].first_row + (args.level - 1) * width + n;
    CopyRow(args.outputs.data + (tree * width + n) * args.outputs.stride,
            args.kept.data + to * args.kept.stride, args.outputs.cols);
    return;
  }
  const int warp = threadIdx.x / 32;
  for (int n = warp; n < width; n += kExpandThreads / 32) {
    const int row = tree * width + n;
    RankRow(args.ranked, row, width, best[warp], args.entries + static_cast<int64_t>(row) * width);
    __syncwarp();  // before the next row's best
  }
  __syncthreads();
  if (warp == 0) ExpandTree(args, tree);
}

}  // namespace

Result<std::unique_ptr<CudaBeamSearch>> CudaBeamSearch::Create(Context* context,
                                                               const BeamLimits& limits,
                                                               std::span<const int32_t> token_ids) {
  std::unique_ptr<CudaBeamSearch> search;
  const BeamLayout layout{limits.width, limits.trees};
  if (limits.width > kMostWidth || layout.NumCandidates(limits.levels) > kMostCandidates) {
    return Result<std::unique_ptr<CudaBeamSearch>>(std::move(search));
  }
  search.reset(new CudaBeamSearch(context, limits));
  TALON_RETURN_IF_ERROR(search->Allocate(token_ids));
  return Result<std::unique_ptr<CudaBeamSearch>>(std::move(search));
}

CudaBeamSearch::~CudaBeamSearch() {
  if (arrived_ != nullptr) cudaEventDestroy(arrived_);
}

Status CudaBeamSearch::Allocate(std::span<const int32_t> token_ids) {
  UseDevice(context_->stream());
  TALON_CUDA_CHECK(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming));
  const BeamLayout most{limits_.width, limits_.trees};
  const size_t trees = limits_.trees;
  const size_t beams = trees * limits_.levels * limits_.width;
  const size_t beam_bytes = words_ * sizeof(uint64_t) + 3 * sizeof(int32_t) + sizeof(float);
  const size_t entries = most.NumEntries(limits_.levels);
  const struct {
    Buffer* buffer;
    size_t bytes;
  } buffers[] = {{&token_ids_, token_ids.size_bytes()},
                 {&root_entries_, trees * limits_.width * sizeof(TopKEntry)},
                 {&roots_, trees * sizeof(BeamRoot)},
                 {&beams_, beams * beam_bytes},
                 {&entries_, entries * sizeof(TopKEntry)},
                 {&keys_, entries * sizeof(uint64_t)}};
  for (const auto& [buffer, bytes] : buffers) {
    TALON_ASSIGN_OR_RETURN(*buffer, AllocateDevice(stream(), bytes));
  }
  TALON_ASSIGN_OR_RETURN(rankings_, AllocatePinned(entries * sizeof(TopKEntry)));
  context_->Copy(token_ids_.data(), token_ids.data(), token_ids.size_bytes());
  return OkStatus();
}

Beams CudaBeamSearch::AllBeams() const {
  const size_t count = static_cast<size_t>(limits_.trees) * limits_.levels * limits_.width;
  auto* masks = As<uint64_t>(beams_);
  auto* tokens = reinterpret_cast<int32_t*>(masks + count * words_);
  return {.tokens = tokens,
          .parents = tokens + count,
          .candidates = tokens + 2 * count,
          .scores = reinterpret_cast<float*>(tokens + 3 * count),
          .masks = masks,
          .words = words_};
}

RankedChunks CudaBeamSearch::Rank(MatrixView logits) {
  void* scratch = top_k_scratch_.Get(TopKScratchBytes(logits.rows, logits.cols, limits_.width));
  return RankChunks(stream(), logits, limits_.width, scratch);
}

void CudaBeamSearch::RankRoots(std::span<const int32_t> slots, MatrixView logits,
                               MatrixView outputs, MatrixView kept) {
  const CudaClock::Batch batch(context_->clock());
  const auto rows = static_cast<int>(slots.size());
  TALON_CHECK(rows <= limits_.trees && logits.rows == rows && outputs.rows == rows);
  TALON_CHECK(outputs.cols == kept.cols);
  const RankedChunks ranked = Rank(logits);
  ForFew(slots, [&](const Few<int32_t>& few, int first, int count) {
    Launch(stream(), RankRootsKernel, count, kRowThreads, 0, ranked, few, first, limits_.width,
           As<TopKEntry>(root_entries_), outputs, kept);
  });
}

void CudaBeamSearch::Start(std::span<const BeamRoot> roots) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(static_cast<int>(roots.size()) <= limits_.trees);
  trees_ = static_cast<int>(roots.size());
  level_ = 1;
  sent_ = false;
  ForFew(roots, [&](const Few<BeamRoot>& few, int first, int count) {
    Launch(stream(), StartBeamKernel, count, 32, 0, layout(), few, first,
           As<const TopKEntry>(root_entries_), As<const int32_t>(token_ids_),
           As<TopKEntry>(entries_), As<BeamRoot>(roots_), AllBeams());
  });
}

void CudaBeamSearch::Load(Pass* pass, MatrixView kept, MatrixView inputs) {
  const CudaClock::Batch batch(context_->clock());
  const DevicePlan& plan = PlanOf(*pass);
  const int rows = trees_ * limits_.width;
  TALON_CHECK(plan.rows == rows && inputs.rows == rows && inputs.cols == kept.cols);
  const Beams beams = AllBeams();
  const size_t first = layout().BeamOf(level_, 0, 0);
  // Kernels may read a pass's arrays before those in front of them are done (attention.h), so
  // nothing may start early here.
  Stream in_order = stream();
  in_order.uses_pdl = false;
  Launch(in_order, LoadBeamKernel, rows, kRowThreads, 0,
         LoadArgs{.tokens = beams.tokens + first,
                  .parents = beams.parents + first,
                  .masks = beams.masks + first * words_,
                  .words = words_,
                  .pass_tokens = const_cast<int32_t*>(plan.tokens),
                  .pass_masks = const_cast<uint64_t*>(plan.ancestors),
                  .pass_words = plan.mask_words,
                  .kept = kept,
                  .inputs = inputs});
}

void CudaBeamSearch::Expand(MatrixView logits, MatrixView outputs, MatrixView kept) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(level_ < limits_.levels && logits.rows == trees_ * limits_.width);
  TALON_CHECK(outputs.rows == logits.rows && outputs.cols == kept.cols);
  TopKEntry* entries = As<TopKEntry>(entries_) + layout().NumEntries(level_);
  const RankedChunks ranked = Rank(logits);
  Launch(stream(), ExpandBeamKernel, dim3(trees_, 1 + limits_.width), kExpandThreads, 0,
         ExpandArgs{.layout = layout(),
                    .ranked = ranked,
                    .entries = entries,
                    .token_ids = As<const int32_t>(token_ids_),
                    .roots = As<const BeamRoot>(roots_),
                    .level = level_,
                    .beams = AllBeams(),
                    .outputs = outputs,
                    .kept = kept});
  ++level_;
}

void CudaBeamSearch::LoadTrees(Pass* pass, std::span<const TreePlace> places) {
  const CudaClock::Batch batch(context_->clock());
  const DevicePlan& plan = PlanOf(*pass);
  for (const TreePlace& place : places) {
    TALON_CHECK(place.tree < trees_ && place.levels <= level_);
    TALON_CHECK(place.root_row + place.nodes <= plan.rows);
    TALON_CHECK(place.above + place.nodes <= 64 * plan.mask_words);
  }
  WriteTreeRows(stream(), places,
                {.layout = layout(),
                 .levels = level_,
                 .entries = As<const TopKEntry>(entries_),
                 .token_ids = As<const int32_t>(token_ids_),
                 .beam_candidates = AllBeams().candidates,
                 .beam_scores = AllBeams().scores,
                 .keys = As<uint64_t>(keys_),
                 .plan = plan,
                 .rankings = As<TopKEntry>(rankings_)});
  sent_ = !places.empty();
  if (sent_) TALON_CUDA_CHECK(cudaEventRecord(arrived_, stream().handle));
}

std::span<const TopKEntry> CudaBeamSearch::Read() {
  const size_t count = layout().NumEntries(level_);
  if (!sent_) {
    TALON_CUDA_CHECK(cudaMemcpyAsync(rankings_.data(), entries_.data(), count * sizeof(TopKEntry),
                                     cudaMemcpyDeviceToHost, stream().handle));
    TALON_CUDA_CHECK(cudaEventRecord(arrived_, stream().handle));
    sent_ = true;
  }
  TALON_CUDA_CHECK(cudaEventSynchronize(arrived_));
  return {As<const TopKEntry>(rankings_), count};
}

}  // namespace talon::cuda
