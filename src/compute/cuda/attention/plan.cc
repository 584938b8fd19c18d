#include "compute/cuda/attention/plan.h"

#include <algorithm>
#include <bit>

#include "compute/cuda/attention/sequence.h"

namespace talon::cuda {
namespace {

int CountAncestors(const PassPlan& pass, int row) {
  int count = 0;
  for (int word = 0; word < pass.mask_words; ++word) {
    count += std::popcount(pass.ancestors[static_cast<size_t>(row) * pass.mask_words + word]);
  }
  return count;
}

SequenceWork AddRows(const PassPlan& pass, int sequence, AttentionPlan* plan) {
  const int before = pass.nodes_before.empty() ? 0 : pass.nodes_before[sequence];
  const int first_list = pass.sequence_lists.empty() ? sequence : pass.sequence_lists[sequence];
  SequenceWork work{.row_begin = pass.sequence_rows[sequence],
                    .row_end = pass.sequence_rows[sequence + 1],
                    .nodes_begin = static_cast<int>(plan->node_places.size())};
  work.blocks = pass.NumLists(sequence) > 1 ? ~first_list : pass.block_offsets[first_list];
  work.old_end = INT32_MAX;
  for (int r = work.row_begin; r < work.row_end; ++r) {
    const int ancestors = CountAncestors(pass, r);
    const int prefix = pass.prefix_len[r];
    plan->rows.push_back(
        {.sequence = sequence, .prefix_len = prefix, .num_keys = prefix + ancestors});
    work.prefix_end = std::max(work.prefix_end, prefix);
    work.has_nodes |= ancestors != 0;
    // A prompt row's own key is the last it sees.
    if (ancestors == 0) work.old_end = std::min(work.old_end, prefix - 1);
  }
  const auto known = static_cast<int>(pass.fresh_keys.size());
  const int fresh = sequence < known ? pass.fresh_keys[sequence] : 0;
  work.old_end = std::max(0, std::min(work.old_end, work.prefix_end - fresh));
  if (!work.has_nodes) return work;
  work.num_nodes = before + work.row_end - work.row_begin;
  for (int n = 0; n < work.num_nodes; ++n) {
    plan->node_places.push_back(pass.PlaceOf(sequence, n));
  }
  return work;
}

}  // namespace

std::vector<PrefixKind> KindsOf(const AttentionShape& shape) {
  const bool is_16_bit = shape.dtype == DType::kBF16 || shape.dtype == DType::kF16;
  if (!is_16_bit || shape.head_dim % 8 != 0 || shape.head_dim > 256) return {};
  const int dim = PaddedHeadDim(shape.head_dim);
  std::vector<PrefixKind> kinds;
  const auto add = [&](int queries, PrefixKernelKind kernel, int shared_bytes) {
    if (shared_bytes <= shape.shared_memory) kinds.push_back({queries, kernel});
  };
  if (shape.has_warpgroups && !shape.deterministic && dim <= 128) {
    for (const int tile : {16, 32}) add(tile, PrefixKernelKind::kFew, FewSharedBytes(tile, dim));
    for (const int tile : {64, 128, 256}) {
      add(tile, PrefixKernelKind::kWarpgroups, WarpgroupSharedBytes(std::min(tile / 64, 2), dim));
    }
    return kinds;
  }
  for (const int tile : {16, 32, 64, 128}) {
    if (dim > 128 && tile > 64) continue;  // limited by the accumulators' registers
    add(tile, PrefixKernelKind::kTiles, TileSharedBytes(tile, dim));
  }
  return kinds;
}

AttentionItem SequenceWork::ItemOf(int head, int query, const AttentionShape& shape,
                                   int tile_queries) const {
  return {.kv_head = head,
          .query_begin = query,
          .query_end = std::min(row_end * shape.group, query + tile_queries),
          .prefix_end = prefix_end,
          .old_end = old_end,
          .blocks = blocks,
          .nodes = nodes_begin};
}

int TileQueries(int rows, int sequences, const AttentionShape& shape) {
  const int queries = (rows + sequences - 1) / std::max(sequences, 1) * shape.group;
  int chosen = 0;
  for (const PrefixKind& kind : KindsOf(shape)) {
    if (chosen == 0 || chosen < queries) chosen = kind.queries;
  }
  return chosen;
}

void AttentionPlan::Build(const PassPlan& pass, const AttentionShape& shape) {
  items.clear();
  rows.clear();
  node_places.clear();
  num_items = 0;
  num_partials = 0;
  tile_queries = TileQueries(pass.num_rows(), pass.num_sequences(), shape);
  kernel = PrefixKernelKind::kTiles;
  cluster = 1;
  merges_in_place = false;
  spans = !shape.deterministic;
  std::vector<SequenceWork> works;
  for (int s = 0; s < pass.num_sequences(); ++s) works.push_back(AddRows(pass, s, this));
  if (tile_queries == 0) return;
  if (spans) {
    AddSpans(works, shape, this);
  } else {
    if (shape.tile_queries != 0) tile_queries = shape.tile_queries;
    AddChunks(shape, &works, this);
  }
  num_items = static_cast<int>(items.size());
  const size_t blocks = static_cast<size_t>(kMaxPrefixBlocks) * shape.multiprocessors;
  if (items.size() < blocks) items.resize(blocks);
}

size_t AttentionScratchBytes(int64_t num_partials, int heads, int head_dim) {
  const size_t state = (static_cast<size_t>(head_dim) + kStateHeader) * sizeof(float);
  return kScratchHeaderBytes + static_cast<size_t>(num_partials) * heads * state;
}

}  // namespace talon::cuda
