#include "compute/cuda/cuda_pass.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/contain.h"
#include "compute/cuda/attention/attention.h"
#include "compute/cuda/runtime/upload.h"

namespace talon::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kMostGraphRows = 256;  // in prompts, launches are a small part of the time
// A capture costs as much as launching the pass a few times. The shapes of one sequence are few,
// but batches of trimmed trees have hundreds, most of which hardly come again.
constexpr int kDirectRuns = 1;
constexpr int kDirectRunsOfBatch = 2;
constexpr int kMostGraphs = 256;
constexpr size_t kMostShapes = 4096;

template <typename T>
std::pair<const void*, size_t> ArrayOf(const std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T)};
}

// Sections in the order of CudaPass::Arrays.
enum SectionName {
  kTokens,
  kPositions,
  kPlaces,
  kPrefixLen,
  kRowSequence,
  kAttentionRows,
  kSequenceRows,
  kNodesBefore,
  kStagingFirst,
  kFirstList,
  kManyLists,
  kOutputRows,
  kFeatureRows,
  kScores,
  kAncestors,
  kNodePlaces,
  kNumItems,
  kBlockOffsets,
  kItems,
  kBlockIds
};

}  // namespace

void CudaPass::Load(const PassPlan& plan, const KvShape& shape, UploadRing* uploads) {
  CompileRows(plan);
  attention_.Build(plan, {.kv_heads = shape.kv_heads,
                          .group = query_heads_ / shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .dtype = shape.dtype,
                          .multiprocessors = stream_.multiprocessors,
                          .shared_memory = stream_.shared_memory,
                          .has_warpgroups = HasWarpgroupAttention(),
                          .tile_queries = options_.attention_tile});
  const auto arrays = Arrays(plan);
  for (int i = 0; i < kSections; ++i) {
    if (arrays[i].second <= sections_[i].capacity) continue;
    Grow(arrays);
    break;
  }
  const size_t bytes = sections_[kBlockIds].offset + arrays[kBlockIds].second;
  auto* host = static_cast<uint8_t*>(uploads->Begin(bytes));
  for (int i = 0; i < kSections; ++i) {
    const auto& [data, size] = arrays[i];
    if (size > 0) std::memcpy(host + sections_[i].offset, data, size);
  }
  uploads->Send(arena_.data(), bytes);
  plan_.rows = plan.num_rows();
  plan_.sequences = plan.num_sequences();
  plan_.mask_words = plan.mask_words;
  plan_.outputs = static_cast<int>(plan.output_rows.size());
  plan_.features = static_cast<int>(plan.feature_rows.size());
  plan_.score_requests = static_cast<int>(plan.scores.size());
  plan_.tile_queries = attention_.tile_queries;
  plan_.kernel = attention_.kernel;
  plan_.has_tails = attention_.has_tails;
  plan_.only_sections = attention_.only_sections;
  scored_blocks_ = plan.num_scored_blocks();
}

void CudaPass::CompileRows(const PassPlan& plan) {
  const int sequences = plan.num_sequences();
  places_.clear();
  row_sequence_.clear();
  first_list_.resize(sequences);
  many_lists_.resize(sequences);
  nodes_before_.assign(sequences, 0);
  staging_first_.resize(sequences);
  for (int s = 0; s < sequences; ++s) {
    first_list_[s] = plan.sequence_lists.empty() ? s : plan.sequence_lists[s];
    many_lists_[s] = plan.NumLists(s) > 1 ? 1 : 0;
    if (!plan.nodes_before.empty()) nodes_before_[s] = plan.nodes_before[s];
    staging_first_[s] = plan.staging_first.empty() ? plan.sequence_rows[s] : plan.staging_first[s];
    for (int row = plan.sequence_rows[s]; row < plan.sequence_rows[s + 1]; ++row) {
      places_.push_back(plan.PlaceOfRow(s, row));
      row_sequence_.push_back(s);
    }
  }
}

std::array<std::pair<const void*, size_t>, CudaPass::kSections> CudaPass::Arrays(
    const PassPlan& plan) {
  return {ArrayOf(plan.tokens),
          ArrayOf(plan.positions),
          ArrayOf(places_),
          ArrayOf(plan.prefix_len),
          ArrayOf(row_sequence_),
          ArrayOf(attention_.rows),
          ArrayOf(plan.sequence_rows),
          ArrayOf(nodes_before_),
          ArrayOf(staging_first_),
          ArrayOf(first_list_),
          ArrayOf(many_lists_),
          ArrayOf(plan.output_rows),
          ArrayOf(plan.feature_rows),
          ArrayOf(plan.scores),
          ArrayOf(plan.ancestors),
          ArrayOf(attention_.node_places),
          {&attention_.num_items, sizeof(attention_.num_items)},
          ArrayOf(plan.block_offsets),
          ArrayOf(attention_.items),
          ArrayOf(plan.block_ids)};
}

void CudaPass::Grow(std::span<const std::pair<const void*, size_t>> arrays) {
  DropGraphs();
  size_t offset = 0;
  for (int i = 0; i < kSections; ++i) {
    Section& section = sections_[i];
    section.capacity =
        std::max(section.capacity, std::bit_ceil(std::max(arrays[i].second, kAlignment)));
    section.offset = offset;
    offset += section.capacity;
  }
  TALON_CUDA_CHECK(cudaStreamSynchronize(stream_.handle));
  arena_ = MemoryOrThrow(AllocateDevice(stream_, offset));
  ++address_version_;
  SetPointers();
}

void CudaPass::SetPointers() {
  plan_.tokens = At<int32_t>(kTokens);
  plan_.positions = At<int32_t>(kPositions);
  plan_.places = At<int32_t>(kPlaces);
  plan_.prefix_len = At<int32_t>(kPrefixLen);
  plan_.row_sequence = At<int32_t>(kRowSequence);
  plan_.attention_rows = At<AttentionRow>(kAttentionRows);
  plan_.sequence_rows = At<int32_t>(kSequenceRows);
  plan_.nodes_before = At<int32_t>(kNodesBefore);
  plan_.staging_first = At<int32_t>(kStagingFirst);
  plan_.first_list = At<int32_t>(kFirstList);
  plan_.many_lists = At<int32_t>(kManyLists);
  plan_.output_rows = At<int32_t>(kOutputRows);
  plan_.feature_rows = At<int32_t>(kFeatureRows);
  plan_.scores = At<ScoreRequest>(kScores);
  plan_.ancestors = At<uint64_t>(kAncestors);
  plan_.node_places = At<int32_t>(kNodePlaces);
  plan_.num_items = At<int32_t>(kNumItems);
  plan_.block_offsets = At<int32_t>(kBlockOffsets);
  plan_.items = At<AttentionItem>(kItems);
  plan_.block_ids = At<int32_t>(kBlockIds);
}

CudaPass::Shape CudaPass::shape() const {
  return {.address_version = address_version_,
          .rows = plan_.rows,
          .sequences = plan_.sequences,
          .mask_words = plan_.mask_words,
          .outputs = plan_.outputs,
          .features = plan_.features,
          .score_requests = plan_.score_requests,
          .scored_blocks = scored_blocks_,
          .tile_queries = plan_.tile_queries,
          .kernel = plan_.kernel,
          .has_tails = plan_.has_tails,
          .only_sections = plan_.only_sections};
}

void CudaPass::RunAsGraph(const CudaPass* second, uint64_t key, uint64_t generation,
                          const std::function<void()>& ops) {
  const auto run_directly = [&] {
    Fence(stream_);  // the pass's arrays are read early
    ops();
  };
  if (!options_.graphs || waits() || plan_.rows > kMostGraphRows) return run_directly();
  if (generation != generation_ || num_captured_ == kMostGraphs || graphs_.size() > kMostShapes) {
    DropGraphs();
  }
  generation_ = generation;
  Graph& graph = graphs_[GraphKey{key, shape(), second != nullptr ? second->shape() : Shape{}}];
  // The first run also grows scratch and sets up libraries, which cannot be done during capture.
  if (graph.direct_runs < (plan_.sequences > 1 ? kDirectRunsOfBatch : kDirectRuns)) {
    ++graph.direct_runs;
    return run_directly();
  }
  if (graph.executable == nullptr) CaptureGraph(ops, &graph);
  TALON_CUDA_CHECK(injected_launch_error.load(std::memory_order_relaxed));
  TALON_CUDA_CHECK(cudaGraphLaunch(graph.executable, stream_.handle));
  stored_layers_ = graph.stored_layers;
}

void CudaPass::CaptureGraph(const std::function<void()>& ops, Graph* to) {
  cudaGraph_t graph = nullptr;
  TALON_CUDA_CHECK(cudaStreamBeginCapture(stream_.handle, cudaStreamCaptureModeThreadLocal));
  ops();
  TALON_CUDA_CHECK(cudaStreamEndCapture(stream_.handle, &graph));
  TALON_CUDA_CHECK(cudaGraphInstantiate(&to->executable, graph, 0));
  TALON_CUDA_CHECK(cudaGraphDestroy(graph));
  to->stored_layers = stored_layers_;
  ++num_captured_;
}

void CudaPass::DropGraphs() {
  if (graphs_.empty()) return;
  // Not the stream: the backend may be destroyed before its passes, and the stream with it.
  UseDevice(stream_);
  cudaDeviceSynchronize();
  for (const auto& [key, graph] : graphs_) {
    if (graph.executable != nullptr) cudaGraphExecDestroy(graph.executable);
  }
  graphs_.clear();
  num_captured_ = 0;
}

}  // namespace talon::cuda
