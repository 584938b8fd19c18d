#include "compute/cuda/attention/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <utility>

#include "base/math.h"
#include "compute/kv_view.h"

namespace talon::cuda {
namespace {

// Properties that the rows of a sequence share.
struct SequenceWork {
  int row_begin = 0;
  int row_end = 0;
  int prefix_end = 0;   // maximum keys of the block list that any row sees
  int old_end = 0;      // AttentionItem
  int blocks = 0;       // AttentionItem
  int nodes_begin = 0;  // in AttentionPlan::node_places
  int num_nodes = 0;
  bool has_tail = false;  // its rows see nodes that they do not share
  // Minimum and maximum length of the rows' shared parts, and the number of leading items that are
  // whole sections.
  int min_shared = 0;
  int max_shared = 0;
  int sections = 0;

  int NumTiles(int group, int tile_queries) const {
    return CeilDiv((row_end - row_begin) * group, tile_queries);
  }
};

// A variant of the prefix kernel, and its measured microseconds on an H200: a unit of keys for a
// tile of queries, and the overheads of a chunk, of one that is merged into a section, and of an
// item. PrefixKernel, with several blocks
// on an SM, also reads faster: `bandwidth` in bytes per microsecond.
struct PrefixKind {
  int queries = 0;
  PrefixKernelKind kernel = PrefixKernelKind::kTiles;
  double unit_cost = 0;
  double chunk_cost = 0;
  double merge_cost = 0;
  double item_cost = 0;
  double bandwidth = 0;

  // Keys per step of the kernel.
  int unit() const { return kernel == PrefixKernelKind::kTiles ? kTileKeys : kStepKeys; }
  // Whether two blocks share keys and values, with half of the queries each.
  bool is_pair() const { return queries == 256; }
  // Items that run at once at these costs: a third block of an SM hides latency, but slows down the
  // others.
  int Slots(const AttentionShape& shape) const {
    if (kernel == PrefixKernelKind::kTiles) {
      const int blocks = PrefixBlocks(queries, PaddedHeadDim(shape.head_dim));
      return std::min(blocks, 2) * shape.multiprocessors;
    }
    return std::max(1, is_pair() ? shape.multiprocessors / 2 : shape.multiprocessors);
  }
  // Where blocks take the items one by one, shorter ones make up for SMs that get less of the
  // memory's bandwidth than others.
  double LongestItem() const {
    constexpr double kShort = 48;
    return kernel == PrefixKernelKind::kTiles ? kShort : std::numeric_limits<double>::infinity();
  }
};

constexpr PrefixKind kTileKinds[] = {{16, PrefixKernelKind::kTiles, 2.0, 0.8, 0.8, 1.0, 4.3e6},
                                     {32, PrefixKernelKind::kTiles, 2.1, 0.8, 0.8, 1.5, 4.3e6},
                                     {64, PrefixKernelKind::kTiles, 2.6, 1.2, 1.2, 3.0, 4.3e6},
                                     {128, PrefixKernelKind::kTiles, 4.8, 1.5, 1.5, 3.5, 4.3e6}};
constexpr PrefixKind kHopperKinds[] = {
    {16, PrefixKernelKind::kTiles, 2.0, 0.8, 0.8, 1.0, 4.3e6},
    {32, PrefixKernelKind::kTiles, 2.1, 0.8, 0.8, 1.5, 4.3e6},
    {64, PrefixKernelKind::kWarpgroups, 1.3, 2.5, 2.5, 3.5, 3.85e6},
    {128, PrefixKernelKind::kWarpgroups, 1.85, 2.5, 0.7, 6.0, 3.85e6},
    {256, PrefixKernelKind::kWarpgroups, 1.8, 2.5, 0.7, 6.0, 3.85e6}};
// For codes, which WarpgroupKernel expands in its producer warps; PrefixKernel does so between the
// copies and the products.
constexpr PrefixKind kHopperCodeKinds[] = {
    {16, PrefixKernelKind::kTiles, 4.3, 0.8, 0.8, 1.0, 4.3e6},
    {32, PrefixKernelKind::kTiles, 4.5, 0.8, 0.8, 1.5, 4.3e6},
    {64, PrefixKernelKind::kWarpgroups, 1.75, 0.6, 4.0, 6.0, 3.85e6},
    {128, PrefixKernelKind::kWarpgroups, 2.0, 2.0, 1.5, 6.5, 3.85e6},
    {256, PrefixKernelKind::kWarpgroups, 1.8, 3.5, 0.5, 9.0, 3.85e6}};
constexpr double kBytesPerMicrosecond = 4.3e6;  // bandwidth for partials

int SharedBytes(const PrefixKind& kind, int dim) {
  if (kind.kernel == PrefixKernelKind::kTiles) return TileSharedBytes(kind.queries, dim);
  return WarpgroupSharedBytes(std::min(kind.queries / 64, 2), dim);
}

std::span<const PrefixKind> HopperKinds(DType dtype) {
  if (IsQuantisedKv(dtype)) return kHopperCodeKinds;
  return kHopperKinds;
}

// The variants that the shape allows, by ascending queries; empty: use the generic kernel.
std::vector<PrefixKind> KindsOf(const AttentionShape& shape) {
  const DType type = KvValueType(shape.dtype);
  const bool is_16_bit = type == DType::kBF16 || type == DType::kF16;
  const int copied = 16 / static_cast<int>(DTypeSize(shape.dtype));  // elements at once
  if (!is_16_bit || shape.head_dim % copied != 0 || shape.head_dim > 256) return {};
  const int dim = PaddedHeadDim(shape.head_dim);
  const bool hopper = shape.has_warpgroups && dim <= 128;
  std::vector<PrefixKind> kinds;
  for (const PrefixKind& kind : hopper ? HopperKinds(shape.dtype) : kTileKinds) {
    if (dim > 128 && kind.queries > 64) continue;  // limited by the accumulators' registers
    if (SharedBytes(kind, dim) <= shape.shared_memory) kinds.push_back(kind);
  }
  const auto is_other = [&](const PrefixKind& kind) { return kind.queries != shape.tile_queries; };
  if (!std::ranges::all_of(kinds, is_other)) std::erase_if(kinds, is_other);
  return kinds;
}

// ---- Rows ----

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
  bool has_nodes = false;
  for (int r = work.row_begin; r < work.row_end; ++r) {
    const int ancestors = CountAncestors(pass, r);
    const int prefix = pass.prefix_len[r];
    plan->rows.push_back(
        {.sequence = sequence, .prefix_len = prefix, .num_keys = prefix + ancestors});
    work.prefix_end = std::max(work.prefix_end, prefix);
    has_nodes |= ancestors != 0;
    // A prompt row's own key is the last it sees.
    if (ancestors == 0) work.old_end = std::min(work.old_end, prefix - 1);
  }
  const auto known = static_cast<int>(pass.fresh_keys.size());
  const int fresh = sequence < known ? pass.fresh_keys[sequence] : 0;
  work.old_end = std::max(0, std::min(work.old_end, work.prefix_end - fresh));
  if (!has_nodes) return work;
  work.num_nodes = before + work.row_end - work.row_begin;
  for (int n = 0; n < work.num_nodes; ++n) {
    plan->node_places.push_back(pass.PlaceOf(sequence, n));
  }
  // A single row that sees all nodes has them in the order of its keys.
  const bool is_chain = work.row_end - work.row_begin == 1 &&
                        plan->rows.back().num_keys == work.prefix_end + work.num_nodes;
  work.has_tail = !is_chain;
  return work;
}

void FindSharedParts(SequenceWork* work, std::vector<AttentionRow>* rows) {
  work->min_shared = INT32_MAX;
  for (int r = work->row_begin; r < work->row_end; ++r) {
    AttentionRow& row = (*rows)[r];
    const bool has_tail = work->has_tail && row.num_keys > row.prefix_len;
    row.shared_len = has_tail ? row.prefix_len / kTileKeys * kTileKeys : row.num_keys;
    work->min_shared = std::min(work->min_shared, row.shared_len);
    work->max_shared = std::max(work->max_shared, row.shared_len);
  }
}

// ---- Items ----

// Number of sections that lie entirely within the first `keys` keys.
int CompleteSections(int keys) {
  const int sections = NumSections(keys);
  return sections > 0 && ChunkBegin(sections * kSectionChunks) > keys ? sections - 1 : sections;
}

// The chunk that the tail kernel continues must be a partial of its own.
int MostSections(const SequenceWork& work) {
  return work.has_tail ? CompleteSections(work.min_shared) : NumSections(work.max_shared);
}

// A variant of the kernel, how long its items should take, and how long all of them would.
struct KindChoice {
  PrefixKind kind;
  bool sections = false;  // items are whole sections where possible, else whole chunks
  double item_time = 0;   // as many of them as take this long
  double cost = std::numeric_limits<double>::infinity();
};

double ChunkTime(const SequenceWork& work, const PrefixKind& kind, int chunk) {
  const int keys = std::min(ChunkBegin(chunk + 1), work.max_shared) - ChunkBegin(chunk);
  return CeilDiv(keys, kind.unit()) * kind.unit_cost + kind.chunk_cost;
}

// The time of all chunks.
double WholeTime(const SequenceWork& work, const PrefixKind& kind) {
  return CeilDiv(work.max_shared, kind.unit()) * kind.unit_cost +
         NumChunks(work.max_shared) * kind.chunk_cost;
}

// A number of items that take equally long.
struct EqualItems {
  double time = 0;
  int count = 0;
};

// The time of chunks [begin, end), of those that there are.
double ChunksTime(const SequenceWork& work, const PrefixKind& kind, int begin, int end) {
  double time = 0;
  for (int chunk = begin; chunk < std::min(end, NumChunks(work.max_shared)); ++chunk) {
    time += ChunkTime(work, kind, chunk);
  }
  return time;
}

// Calls f(first chunk, end chunk, merges, time) for the items of a sequence.
template <typename F>
void ForEachItem(const SequenceWork& work, const KindChoice& choice, F&& f) {
  const PrefixKind& kind = choice.kind;
  const int chunks = NumChunks(work.max_shared);
  const double all = WholeTime(work, kind);
  if (!choice.sections && chunks > 0 && all <= choice.item_time) {
    return f(0, chunks, false, all + kind.item_cost);
  }
  const int whole = choice.sections ? std::min(chunks, MostSections(work) * kSectionChunks) : 0;
  for (int begin = 0, end = 0; begin < chunks; begin = end) {
    const bool merges = begin < whole;
    const int unit = merges ? kSectionChunks : 1;  // chunks that are not divided
    const int limit = merges ? whole : chunks;
    double time = 0;
    double next = ChunksTime(work, kind, begin, begin + unit);
    do {
      time += next;
      end = std::min(end + unit, limit);
      next = ChunksTime(work, kind, end, end + unit);
    } while (end < limit && time + next <= choice.item_time);
    f(begin, end, merges, time + kind.item_cost);
  }
}

// The time in which all items run, the longest first, each in the slot that is free first: a bound
// that the last of them and the first two that must share a slot give. Sections are too long to
// fill the slots evenly.
double BusyTime(bool sections, int slots, std::vector<EqualItems>* items) {
  double time = 0, count = 0;
  double shortest = std::numeric_limits<double>::infinity(), longest = 0;
  for (const EqualItems& group : *items) {
    time += group.count * group.time;
    count += group.count;
    shortest = std::min(shortest, group.time);
    longest = std::max(longest, group.time);
  }
  if (count <= slots) return longest;
  if (sections) return std::max(longest, time / slots + longest / 2);
  const double rounds = std::ceil(count / slots);
  const double bound = std::max(longest, std::min(rounds * longest, time / slots + shortest));
  constexpr int kManyRounds = 4;  // after so many it matters little how the last one is filled
  if (count > kManyRounds * slots) return bound;
  std::ranges::sort(*items, std::greater(), &EqualItems::time);
  int before = 0;
  double last = 0;  // the last item of the first round
  for (const EqualItems& group : *items) {
    if (before < slots) last = group.time;
    before += group.count;
    if (before > slots) return std::max(bound, last + group.time);
  }
  return bound;
}

// Finds the cheapest way to run the items of a pass.
class KindChooser {
 public:
  KindChooser(const std::vector<SequenceWork>& works, const AttentionShape& shape)
      : works_(works), shape_(shape) {}

  KindChoice Choose() {
    const bool many_rows = std::ranges::any_of(
        works_, [](const SequenceWork& work) { return work.row_end - work.row_begin > 1; });
    for (const PrefixKind& kind : KindsOf(shape_)) {
      ConsiderTimes(kind, /*sections=*/false);
      if (!many_rows) continue;  // partials of single rows are small
      PrefixKind merging = kind;
      merging.chunk_cost = kind.merge_cost;
      ConsiderTimes(merging, /*sections=*/true);
    }
    return best_;
  }

 private:
  int TilesOf(const SequenceWork& work, const PrefixKind& kind) const {
    return work.NumTiles(shape_.group, kind.queries) * shape_.kv_heads;
  }
  int TilesOf(const PrefixKind& kind) const {
    int tiles = 0;
    for (const SequenceWork& work : works_) tiles += TilesOf(work, kind);
    return tiles;
  }
  // A slot's share of the time of all chunks.
  double FairShare(const PrefixKind& kind) const {
    double time = 0;
    for (const SequenceWork& work : works_) time += TilesOf(work, kind) * WholeTime(work, kind);
    return time / kind.Slots(shape_);
  }
  // Partials are written and read, and need memory.
  double CostOf(double busy, double partials) const {
    const double state_bytes = shape_.kv_heads * shape_.group * shape_.head_dim * sizeof(float);
    return busy + busy / 10 + 4 * partials * state_bytes / kBytesPerMicrosecond;
  }

  // Items of about a fair share run in one round; where sequences are few, shorter ones fill the
  // slots evenly.
  void ConsiderTimes(const PrefixKind& kind, bool sections) {
    const double share = FairShare(kind);
    if (CostOf(share, 0) >= best_.cost) return;
    const double longest = kind.LongestItem();
    Consider(kind, sections, std::min(1.25 * share, longest));
    if (share < longest) Consider(kind, sections, share);
    if (TilesOf(kind) < 2 * kind.Slots(shape_)) {
      Consider(kind, sections, std::min(0.4 * share, longest));
    }
    if (sections) Consider(kind, sections, 0);  // each by itself
  }
  void Consider(const PrefixKind& kind, bool sections, double item_time) {
    KindChoice choice{kind, sections, item_time};
    double keys = 0, partials = 0;
    items_.clear();
    for (const SequenceWork& work : works_) {
      keys += work.max_shared;
      partials += double{1} * (work.row_end - work.row_begin) *
                  (sections ? NumSections(work.max_shared) : NumChunks(work.max_shared));
      const int tiles = TilesOf(work, kind);
      ForEachItem(work, choice, [&](int, int, bool, double time) {
        items_.push_back({time, tiles});
      });
    }
    const double read =
        keys * 2 * shape_.kv_heads * shape_.head_dim * DTypeSize(shape_.dtype) / kind.bandwidth;
    const double busy = BusyTime(sections, kind.Slots(shape_), &items_);
    choice.cost = CostOf(busy, partials) + std::max(0.0, read - busy);
    if (choice.cost < best_.cost) best_ = choice;
  }

  const std::vector<SequenceWork>& works_;
  const AttentionShape& shape_;
  std::vector<EqualItems> items_;
  KindChoice best_;
};

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

AttentionItem ItemOf(const SequenceWork& work, int head, int query, const AttentionShape& shape,
                     const AttentionPlan& plan) {
  AttentionItem item{.kv_head = head,
                     .query_begin = query,
                     .query_end = std::min(work.row_end * shape.group, query + plan.tile_queries),
                     .full_end = INT32_MAX,
                     .prefix_end = work.prefix_end,
                     .old_end = work.old_end,
                     .blocks = work.blocks,
                     .nodes = work.nodes_begin};
  // The keys that the tile's rows see.
  for (int r = query / shape.group; r <= (item.query_end - 1) / shape.group; ++r) {
    item.key_end = std::max(item.key_end, plan.rows[r].shared_len);
    item.full_end = std::min(item.full_end, plan.rows[r].shared_len);
  }
  return item;
}

// Chunks [begin, end) of a sequence, which an item runs.
struct Piece {
  const SequenceWork* work = nullptr;
  int begin = 0;
  int end = 0;
  bool merges = false;  // AttentionItem
  double time = 0;      // an item takes
};

// The longest first.
std::vector<Piece> PiecesOf(const std::vector<SequenceWork>& works, const KindChoice& choice) {
  std::vector<Piece> pieces;
  for (const SequenceWork& work : works) {
    ForEachItem(work, choice, [&](int begin, int end, bool merges, double time) {
      pieces.push_back({&work, begin, end, merges, time});
    });
  }
  std::ranges::stable_sort(pieces, std::greater(), &Piece::time);
  return pieces;
}

// Adds the items of a piece for a kv head, one for each tile of queries that sees it. They are
// adjacent, so that the second one finds the keys in the cache.
void AddItems(const Piece& piece, int head, const AttentionShape& shape, AttentionPlan* plan) {
  const SequenceWork& work = *piece.work;
  for (int query = work.row_begin * shape.group; query < work.row_end * shape.group;
       query += plan->tile_queries) {
    AttentionItem item = ItemOf(work, head, query, shape, *plan);
    item.key_begin = ChunkBegin(piece.begin);
    item.key_end = std::min(item.key_end, ChunkBegin(piece.end));
    item.partial = piece.merges ? piece.begin / kSectionChunks
                                : plan->rows[work.row_begin].PartialOf(piece.begin);
    item.chunk = piece.begin;
    item.merges = piece.merges ? 1 : 0;
    if (item.key_end > item.key_begin) plan->items.push_back(item);
  }
}

// Gives each of the two blocks of a pair an item: the same keys for half of the queries.
void SplitPairs(int queries, std::vector<AttentionItem>* items) {
  std::vector<AttentionItem> halves;
  for (const AttentionItem& item : *items) {
    const int middle = std::min(item.query_begin + queries, item.query_end);
    halves.push_back(item);
    halves.back().query_end = middle;
    if (item.next >= 0) halves.back().next = 2 * item.next;
    halves.push_back(item);
    halves.back().query_begin = middle;
    if (item.next >= 0) halves.back().next = 2 * item.next + 1;
  }
  *items = std::move(halves);
}

double ItemTime(const PrefixKind& kind, const AttentionItem& item) {
  return CeilDiv(item.key_end - item.key_begin, kind.unit()) * kind.unit_cost +
         (NumChunks(item.key_end) - item.chunk) * kind.chunk_cost + kind.item_cost;
}

// Schedules the blocks of WarpgroupKernel: they begin with the longest items, and each other one
// follows in the slot that is free first.
void Schedule(const PrefixKind& kind, int slots, std::vector<AttentionItem>* items) {
  const auto time_of = [&kind](const AttentionItem& item) { return ItemTime(kind, item); };
  std::ranges::stable_sort(*items, std::greater(), time_of);
  using Slot = std::pair<double, int>;  // busy until, last item
  std::priority_queue<Slot, std::vector<Slot>, std::greater<>> free;
  for (int i = 0; i < static_cast<int>(items->size()); ++i) {
    double begin = 0;
    if (i >= slots) {
      begin = free.top().first;
      (*items)[free.top().second].next = i;
      free.pop();
    }
    free.emplace(begin + time_of((*items)[i]), i);
  }
}

void AddAllItems(const KindChoice& choice, const AttentionShape& shape,
                 std::vector<SequenceWork>* works, AttentionPlan* plan) {
  for (SequenceWork& work : *works) work.sections = choice.sections ? MostSections(work) : 0;
  PlacePartials(*works, plan);
  const bool scheduled = plan->kernel == PrefixKernelKind::kWarpgroups;
  const int heads = scheduled ? shape.kv_heads : 1;
  for (const Piece& piece : PiecesOf(*works, choice)) {
    for (int head = 0; head < heads; ++head) AddItems(piece, head, shape, plan);
  }
  if (scheduled) Schedule(choice.kind, choice.kind.Slots(shape), &plan->items);
  if (choice.kind.is_pair()) SplitPairs(choice.kind.queries / 2, &plan->items);
  plan->num_items = static_cast<int>(plan->items.size()) * (scheduled ? 1 : shape.kv_heads);
}

}  // namespace

void AttentionPlan::Build(const PassPlan& pass, const AttentionShape& shape) {
  items.clear();
  rows.clear();
  node_places.clear();
  num_items = 0;
  num_partials = 0;
  std::vector<SequenceWork> works;
  for (int s = 0; s < pass.num_sequences(); ++s) works.push_back(AddRows(pass, s, this));
  for (SequenceWork& work : works) FindSharedParts(&work, &rows);
  has_tails = std::ranges::any_of(works, &SequenceWork::has_tail);
  const KindChoice choice = KindChooser(works, shape).Choose();
  only_sections = choice.sections && !has_tails;
  tile_queries = choice.kind.queries;
  kernel = choice.kind.kernel;
  if (tile_queries == 0) return;
  AddAllItems(choice, shape, &works, this);
}

size_t AttentionScratchBytes(int64_t num_partials, int heads, int head_dim) {
  const size_t state = (static_cast<size_t>(head_dim) + kStateHeader) * sizeof(float);
  return kScratchHeaderBytes + static_cast<size_t>(num_partials) * heads * state;
}

}  // namespace talon::cuda
