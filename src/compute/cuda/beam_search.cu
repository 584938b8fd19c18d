#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "compute/cuda/beam_search.h"
#include "compute/cuda/elementwise.h"
#include "compute/cuda/top_k.h"

namespace talon::cuda {
namespace {

constexpr int kMostWidth = 32;  // width * width candidates are 32 of each lane

__global__ void LoadBeamKernel(const int32_t* tokens, const uint64_t* masks, int rows, int words,
                               int32_t* pass_tokens, uint64_t* pass_masks, int pass_words) {
  WaitForInputs();
  for (int r = threadIdx.x; r < rows; r += blockDim.x) {
    pass_tokens[r] = tokens[r];
    for (int w = 0; w < pass_words; ++w) {
      pass_masks[r * pass_words + w] = w < words ? masks[r * words + w] : 0;
    }
  }
}

struct ExpandArgs {
  const TopKEntry* entries;  // [trees][width][width]
  const float* scores;       // of the present beam, [trees][width]
  const uint64_t* masks;
  const int32_t* token_ids;
  const int32_t* first_rows;
  int width;
  int words;
  int level;  // of the present beam
  int32_t* next_tokens;
  int32_t* next_parents;
  float* next_scores;
  uint64_t* next_masks;
};

// One warp a tree: the best `width` of its candidates, the higher score first, then the earlier.
// Impossible ones may be among them, behind the others.
__global__ void ExpandBeamKernel(ExpandArgs args) {
  WaitForInputs();
  const int width = args.width;
  const int count = width * width;
  const int beam = blockIdx.x * width;
  uint64_t keys[kMostWidth];
#pragma unroll
  for (int i = 0; i < kMostWidth; ++i) {
    const int at = i * 32 + threadIdx.x;
    keys[i] = 0;
    if (at < count) {
      const float score =
          args.scores[beam + at / width] + args.entries[blockIdx.x * count + at].log_prob;
      keys[i] = OrderedKey(score, at);
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
      const TopKEntry entry = args.entries[blockIdx.x * count + at];
      args.next_tokens[beam + n] = args.token_ids[entry.id];
      args.next_parents[beam + n] = args.first_rows[blockIdx.x] + (args.level - 1) * width + slot;
      args.next_scores[beam + n] = args.scores[beam + slot] + entry.log_prob;
    }
    const int node = args.level * width + n;  // its own number in the tree
    for (int w = threadIdx.x; w < args.words; w += 32) {
      const uint64_t own = w == node / 64 ? uint64_t{1} << (node % 64) : 0;
      args.next_masks[(beam + n) * args.words + w] =
          args.masks[(beam + slot) * args.words + w] | own;
    }
  }
}

}  // namespace

Result<std::unique_ptr<CudaBeamSearch>> CudaBeamSearch::Create(const Stream& stream,
                                                               const BeamLimits& limits,
                                                               std::span<const int32_t> token_ids) {
  TALON_CHECK(limits.width <= kMostWidth);
  std::unique_ptr<CudaBeamSearch> search(new CudaBeamSearch(stream, limits));
  TALON_RETURN_IF_ERROR(search->Allocate(token_ids));
  return Result<std::unique_ptr<CudaBeamSearch>>(std::move(search));
}

Status CudaBeamSearch::Allocate(std::span<const int32_t> token_ids) {
  const size_t rows = static_cast<size_t>(limits_.trees) * limits_.width;
  const size_t row_bytes = 2 * sizeof(int32_t) + sizeof(float) + words_ * sizeof(uint64_t);
  for (Buffer& beam : beams_) {
    TALON_ASSIGN_OR_RETURN(beam, AllocateDevice(stream_, rows * row_bytes));
  }
  TALON_ASSIGN_OR_RETURN(first_rows_, AllocateDevice(stream_, limits_.trees * sizeof(int32_t)));
  TALON_ASSIGN_OR_RETURN(
      entries_, AllocateDevice(stream_, limits_.levels * rows * limits_.width * sizeof(TopKEntry)));
  TALON_ASSIGN_OR_RETURN(token_ids_, AllocateDevice(stream_, token_ids.size_bytes()));
  TALON_CUDA_CHECK(cudaMemcpyAsync(token_ids_.data(), token_ids.data(), token_ids.size_bytes(),
                                   cudaMemcpyHostToDevice, stream_.handle));
  TALON_CUDA_CHECK(cudaStreamSynchronize(stream_.handle));
  return OkStatus();
}

CudaBeamSearch::Beam CudaBeamSearch::BeamOf(int parity) const {
  const size_t rows = static_cast<size_t>(limits_.trees) * limits_.width;
  auto* masks = static_cast<uint64_t*>(beams_[parity].data());
  auto* tokens = reinterpret_cast<int32_t*>(masks + rows * words_);
  return {tokens, tokens + rows, reinterpret_cast<float*>(tokens + 2 * rows), masks};
}

// The root's successors are the first beam, in their order.
void CudaBeamSearch::Start(std::span<const BeamRoot> roots, UploadRing* uploads) {
  TALON_CHECK(static_cast<int>(roots.size()) <= limits_.trees);
  trees_ = static_cast<int>(roots.size());
  level_ = 1;
  const size_t rows = static_cast<size_t>(limits_.trees) * limits_.width;
  const size_t bytes = beams_[0].bytes();
  auto* masks = static_cast<uint64_t*>(uploads->Begin(bytes));
  std::memset(masks, 0, bytes);
  auto* tokens = reinterpret_cast<int32_t*>(masks + rows * words_);
  int32_t* parents = tokens + rows;
  auto* scores = reinterpret_cast<float*>(tokens + 2 * rows);
  for (int t = 0; t < trees_; ++t) {
    for (int n = 0; n < limits_.width; ++n) {
      const int row = t * limits_.width + n;
      tokens[row] = roots[t].best[n].id;
      scores[row] = roots[t].best[n].log_prob;
      parents[row] = roots[t].output_row;
      masks[row * words_] = uint64_t{1} << n;
    }
  }
  uploads->Send(beams_[0].data(), bytes);
  auto* first = static_cast<int32_t*>(uploads->Begin(trees_ * sizeof(int32_t)));
  for (int t = 0; t < trees_; ++t) first[t] = roots[t].first_row;
  uploads->Send(first_rows_.data(), trees_ * sizeof(int32_t));
}

void CudaBeamSearch::Load(const DevicePlan& plan, MatrixView outputs, MatrixView inputs) {
  const int rows = trees_ * limits_.width;
  TALON_CHECK(plan.rows == rows && inputs.rows == rows);
  const Beam beam = BeamOf((level_ - 1) % 2);
  // Kernels may read a pass's arrays before those in front of them are done (attention.h), so
  // nothing may start early here.
  Stream in_order = stream_;
  in_order.overlaps = false;
  Launch(in_order, LoadBeamKernel, 1, 256, 0, beam.tokens, beam.masks, rows, words_,
         const_cast<int32_t*>(plan.tokens), const_cast<uint64_t*>(plan.ancestors), plan.mask_words);
  GatherRows(in_order, outputs, beam.parents, inputs);
}

void CudaBeamSearch::Expand(MatrixView logits, void* top_k_scratch) {
  const Beam beam = BeamOf((level_ - 1) % 2);
  const Beam next = BeamOf(level_ % 2);
  TopK(stream_, logits, limits_.width, top_k_scratch, Entries(level_));
  Launch(stream_, ExpandBeamKernel, trees_, 32, 0,
         ExpandArgs{.entries = Entries(level_),
                    .scores = beam.scores,
                    .masks = beam.masks,
                    .token_ids = static_cast<const int32_t*>(token_ids_.data()),
                    .first_rows = static_cast<const int32_t*>(first_rows_.data()),
                    .width = limits_.width,
                    .words = words_,
                    .level = level_,
                    .next_tokens = next.tokens,
                    .next_parents = next.parents,
                    .next_scores = next.scores,
                    .next_masks = next.masks});
  ++level_;
}

}  // namespace talon::cuda
