#include <algorithm>

#include "compute/cuda/attention/sequence.h"

namespace talon::cuda {
namespace {

// Number of sections that lie entirely within the first `keys` keys.
int CompleteSections(int keys) {
  const int sections = NumSections(keys);
  return sections > 0 && ChunkBegin(sections * kSectionChunks) > keys ? sections - 1 : sections;
}

int NumItems(const SequenceWork& work) {
  return std::min(work.sections, NumSections(work.max_shared)) +
         std::max(0, NumChunks(work.max_shared) - work.sections * kSectionChunks);
}

void FindSharedParts(SequenceWork* work, std::vector<AttentionRow>* rows) {
  work->min_shared = INT32_MAX;
  for (int r = work->row_begin; r < work->row_end; ++r) {
    AttentionRow& row = (*rows)[r];
    const bool has_tail = row.num_keys > row.prefix_len;
    row.shared_len = has_tail ? row.prefix_len / kTileKeys * kTileKeys : row.prefix_len;
    work->min_shared = std::min(work->min_shared, row.shared_len);
    work->max_shared = std::max(work->max_shared, row.shared_len);
  }
}

// Uses whole sections as items where these are enough to keep the device busy, which makes fewer
// partials.
void ChooseSections(const AttentionShape& shape, int tile_queries,
                    std::vector<SequenceWork>* works) {
  int64_t items = 0;
  for (const SequenceWork& work : *works) {
    const int tiles = work.NumTiles(shape.group, tile_queries);
    items += int64_t{tiles} * shape.kv_heads * NumSections(work.max_shared);
  }
  if (2 * items < 3 * shape.multiprocessors) return;
  for (SequenceWork& work : *works) {
    // The chunk that the tail kernel continues must be a partial of its own.
    work.sections =
        work.has_nodes ? CompleteSections(work.min_shared) : NumSections(work.max_shared);
  }
}

void PlacePartials(const std::vector<SequenceWork>& works, AttentionPlan* plan) {
  for (const SequenceWork& work : works) {
    for (int r = work.row_begin; r < work.row_end; ++r) {
      AttentionRow& row = plan->rows[r];
      row.sections = work.sections;
      row.partial_begin = plan->num_partials;
      plan->num_partials += row.NumPartials();
    }
  }
}

// Adds item `index` of a sequence, for each kv head and tile of queries that sees it. Tiles that
// read the same keys are adjacent, so that the second one hits the cache.
void AddItems(const SequenceWork& work, int index, const AttentionShape& shape,
              AttentionPlan* plan) {
  const bool whole = index < work.sections;
  const int chunk = whole ? index * kSectionChunks : index + work.sections * (kSectionChunks - 1);
  const int end = ChunkBegin(chunk + (whole ? kSectionChunks : 1));
  for (int head = 0; head < shape.kv_heads; ++head) {
    for (int query = work.row_begin * shape.group; query < work.row_end * shape.group;
         query += plan->tile_queries) {
      AttentionItem item = work.ItemOf(head, query, shape, plan->tile_queries);
      item.key_begin = ChunkBegin(chunk);
      item.full_end = INT32_MAX;
      item.partial = index;
      item.chunk = chunk;
      // The keys that the tile's rows see.
      for (int r = query / shape.group; r <= (item.query_end - 1) / shape.group; ++r) {
        item.key_end = std::max(item.key_end, plan->rows[r].shared_len);
        item.full_end = std::min(item.full_end, plan->rows[r].shared_len);
      }
      item.key_end = std::min(item.key_end, end);
      if (item.key_end > item.key_begin) plan->items.push_back(item);
    }
  }
}

}  // namespace

void AddChunks(const AttentionShape& shape, std::vector<SequenceWork>* works, AttentionPlan* plan) {
  for (SequenceWork& work : *works) FindSharedParts(&work, &plan->rows);
  ChooseSections(shape, plan->tile_queries, works);
  PlacePartials(*works, plan);
  int most = 0;
  for (const SequenceWork& work : *works) most = std::max(most, NumItems(work));
  for (int index = most - 1; index >= 0; --index) {  // later chunks are larger
    for (const SequenceWork& work : *works) {
      if (index < NumItems(work)) AddItems(work, index, shape, plan);
    }
  }
}

}  // namespace talon::cuda
