#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/math.h"
#include "compute/cuda/attention/sequence.h"

namespace talon::cuda {
namespace {

// Measured microseconds on an H200: a unit of keys for a tile of queries when the keys are cached,
// the overhead of an item, alone or in a cluster that merges, and merging partials in place.
struct KindCost {
  int queries;
  PrefixKernelKind kernel;
  double unit;
  double item;
  double cluster_item;
  double merge = 0;
};
constexpr KindCost kKindCosts[] = {{16, PrefixKernelKind::kTiles, 2.2, 1.5, 1.5, 1.5},
                                   {32, PrefixKernelKind::kTiles, 2.3, 1.7, 1.7},
                                   {64, PrefixKernelKind::kTiles, 2.6, 2.0, 2.0},
                                   {128, PrefixKernelKind::kTiles, 4.8, 3.0, 3.0},
                                   {16, PrefixKernelKind::kFew, 0.20, 2.0, 2.0, 3.8},
                                   {32, PrefixKernelKind::kFew, 0.26, 3.6, 3.6, 3.8},
                                   {64, PrefixKernelKind::kWarpgroups, 1.50, 5.8, 7.0},
                                   {128, PrefixKernelKind::kWarpgroups, 2.08, 8.5, 8.5},
                                   {256, PrefixKernelKind::kWarpgroups, 2.02, 8.5, 8.5}};
// Cost of merging partials: in the merge kernel it grows with the rows, in place with the partials.
constexpr double kMergeKernelCost = 2.0;
constexpr double kMergedRowCost = 0.02;
constexpr double kPartialCost = 0.1;
constexpr double kBytesPerMicrosecond = 4.3e6;

KindCost CostOf(const PrefixKind& kind) {
  return *std::ranges::find_if(kKindCosts, [&](const KindCost& cost) {
    return cost.queries == kind.queries && cost.kernel == kind.kernel;
  });
}

int UnitsOf(const SequenceWork& work, const PrefixKind& kind) {
  return CeilDiv(work.num_keys(), kind.unit());
}

// Items of `span` units; `runs` consecutive items, one per block of a cluster, make one partial.
struct SpanChoice {
  PrefixKind kind;
  int span = 1;
  int runs = 1;
  double cost = std::numeric_limits<double>::infinity();
};

// Chooses the cheapest spans for one variant of the kernel.
class SpanChooser {
 public:
  SpanChooser(const std::vector<SequenceWork>& works, const AttentionShape& shape,
              const PrefixKind& kind)
      : works_(works), shape_(shape), kind_(kind), cost_(CostOf(kind)) {
    const double key_bytes = 2.0 * shape.kv_heads * shape.head_dim * DTypeSize(shape.dtype);
    for (const SequenceWork& work : works) {
      longest_ = std::max(longest_, UnitsOf(work, kind));
      rows_ += work.row_end - work.row_begin;
      read_ += work.num_keys() * key_bytes / kBytesPerMicrosecond;
    }
  }

  SpanChoice Best() const {
    SpanChoice best;
    for (int runs = 1; runs <= kind_.most_runs(); runs *= 2) {
      const SpanChoice choice = BestFor(runs);
      if (choice.cost < best.cost) best = choice;
    }
    return best;
  }

 private:
  // Compares one wave of long items, several waves of shorter ones that waste less of the last
  // wave, and a single part without a merge.
  SpanChoice BestFor(int runs) const {
    constexpr int kMostRounds = 4;
    const int clusters = NumClusters(kind_.is_pair() ? 2 : runs);
    const int whole = CeilDiv(std::max(longest_, 1), runs);
    SpanChoice best{kind_, whole, runs, CostOfSpan(whole, runs, clusters)};
    for (int rounds = 1; rounds <= kMostRounds; ++rounds) {
      const int span = ShortestSpan(int64_t{rounds} * clusters, runs);
      const double cost = CostOfSpan(span, runs, clusters);
      if (cost < best.cost) best = {kind_, span, runs, cost};
    }
    return best;
  }
  // Number of clusters of `blocks` blocks that are resident.
  int NumClusters(int blocks) const {
    if (kind_.kernel == PrefixKernelKind::kTiles) {
      return shape_.multiprocessors * kind_.ResidentBlocks(shape_.head_dim);
    }
    const int known = shape_.clusters[std::countr_zero(static_cast<unsigned>(blocks))];
    return std::max(1, known > 0 ? known : shape_.multiprocessors / blocks);
  }
  double CostOfSpan(int span, int runs, int clusters) const {
    const auto parts = static_cast<double>(NumParts(span * runs));
    const double rounds = std::ceil(parts / clusters);
    const int partials = CeilDiv(longest_, span * runs);
    double merge = 0;
    if (partials > 1) {
      merge = kind_.MergesPartials() ? cost_.merge + partials * kPartialCost
                                     : kMergeKernelCost + rows_ * kMergedRowCost;
    }
    const double item = runs > 1 ? cost_.cluster_item : cost_.item;
    return std::max(rounds * span * cost_.unit, read_) + rounds * item + merge;
  }
  // Number of parts when all keys are cut into parts of `units` units.
  int64_t NumParts(int units) const {
    int64_t parts = 0;
    for (const SequenceWork& work : works_) {
      parts += int64_t{shape_.kv_heads} * work.NumTiles(shape_.group, kind_.queries) *
               CeilDiv(UnitsOf(work, kind_), units);
    }
    return parts;
  }
  // Shortest span that yields at most `most_parts` parts, or the longest span if none does.
  int ShortestSpan(int64_t most_parts, int runs) const {
    int low = 1, high = std::max(CeilDiv(longest_, runs), 1);
    while (low < high) {
      const int middle = (low + high) / 2;
      if (NumParts(middle * runs) <= most_parts) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  const std::vector<SequenceWork>& works_;
  const AttentionShape& shape_;
  PrefixKind kind_;
  KindCost cost_;
  int longest_ = 0;  // units
  int rows_ = 0;
  double read_ = 0;  // time to read all keys and values once
};

SpanChoice ChooseSpans(const std::vector<SequenceWork>& works, const AttentionShape& shape) {
  SpanChoice best;
  for (const PrefixKind& kind : KindsOf(shape)) {
    if (shape.tile_queries != 0 && kind.queries != shape.tile_queries) continue;
    const SpanChoice choice = SpanChooser(works, shape, kind).Best();
    if (choice.cost < best.cost) best = choice;
  }
  return best;
}

// Keys per item, such that the items of a sequence have about the same length.
int KeysOfItem(const SequenceWork& work, const SpanChoice& choice) {
  const int units = std::max(UnitsOf(work, choice.kind), 1);
  const int parts = CeilDiv(units, choice.span * choice.runs);
  return CeilDiv(units, parts * choice.runs) * choice.kind.unit();
}

void PlacePartials(const SequenceWork& work, int span, AttentionPlan* plan) {
  for (int r = work.row_begin; r < work.row_end; ++r) {
    AttentionRow& row = plan->rows[r];
    const bool sees_nodes = row.num_keys > row.prefix_len;
    row.span = span;
    row.shared_len = sees_nodes ? work.num_keys() : row.prefix_len;
    row.partial_begin = plan->num_partials;
    plan->num_partials += row.NumPartials();
  }
}

// Adds the items of one kv head and tile of queries: `runs` items of `keys` keys for each partial.
// Blocks of a cluster without keys still take part in its reduction.
void AddItems(AttentionItem item, int keys, int runs, int group, AttentionPlan* plan) {
  int end = 0;
  item.full_end = INT32_MAX;
  for (int r = item.query_begin / group; r <= (item.query_end - 1) / group; ++r) {
    end = std::max(end, plan->rows[r].shared_len);
    item.full_end = std::min(item.full_end, plan->rows[r].prefix_len);
  }
  const int partials = CeilDiv(end, keys * runs);
  item.arrivals = partials;
  for (int index = 0; index < partials * runs; ++index) {
    item.key_begin = std::min(index * keys, end);
    item.key_end = std::min(item.key_begin + keys, end);
    item.partial = index / runs;
    plan->items.push_back(item);
  }
}

// Gives each of the two blocks of a pair an item: the same keys for half of the queries.
void SplitPairs(int queries, std::vector<AttentionItem>* items) {
  std::vector<AttentionItem> halves;
  for (const AttentionItem& item : *items) {
    const int middle = std::min(item.query_begin + queries, item.query_end);
    halves.push_back(item);
    halves.back().query_end = middle;
    halves.push_back(item);
    halves.back().query_begin = middle;
  }
  *items = std::move(halves);
}

// Whether items store results, because one partial is complete or the items merge; otherwise they
// store states for the merge kernel.
bool MergesInPlace(const AttentionPlan& plan, const PrefixKind& kind, int num_counters) {
  if (kind.MergesPartials()) return num_counters <= kMaxMergeCounters;
  if (kind.kernel == PrefixKernelKind::kTiles || kind.is_pair()) return false;
  return std::ranges::all_of(plan.items, [](const auto& item) { return item.arrivals <= 1; });
}

}  // namespace

void AddSpans(const std::vector<SequenceWork>& works, const AttentionShape& shape,
              AttentionPlan* plan) {
  const SpanChoice choice = ChooseSpans(works, shape);
  plan->tile_queries = choice.kind.queries;
  plan->kernel = choice.kind.kernel;
  plan->cluster = choice.kind.is_pair() ? 2 : choice.runs;
  int num_counters = 0;
  for (const SequenceWork& work : works) {
    const int keys = KeysOfItem(work, choice);
    PlacePartials(work, keys * choice.runs, plan);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int query = work.row_begin * shape.group; query < work.row_end * shape.group;
           query += plan->tile_queries) {
        AttentionItem item = work.ItemOf(head, query, shape, plan->tile_queries);
        item.counter = num_counters++;
        AddItems(item, keys, choice.runs, shape.group, plan);
      }
    }
  }
  plan->merges_in_place = MergesInPlace(*plan, choice.kind, num_counters);
  if (!plan->merges_in_place) {
    for (AttentionItem& item : plan->items) item.counter = item.arrivals = 0;
  }
  // Later partials first: nodes come with the pass and arrive last. Tiles that read the same keys
  // are adjacent, so that the second one hits the cache. The items of a cluster stay together.
  std::ranges::stable_sort(plan->items, [](const AttentionItem& a, const AttentionItem& b) {
    return a.partial > b.partial;
  });
  if (choice.kind.is_pair()) SplitPairs(choice.kind.queries / 2, &plan->items);
}

}  // namespace talon::cuda
