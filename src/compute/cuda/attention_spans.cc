#include <algorithm>
#include <limits>

#include "compute/cuda/attention_sequence.h"

namespace talon::cuda {
namespace {

// Microseconds on an H200 with all multiprocessors full: a unit of keys for a tile of queries, and
// what comes with each item, queries in and states out.
struct KindCost {
  int queries;
  int warpgroups;
  bool few;
  double unit;
  double item;
};
constexpr KindCost kKindCosts[] = {
    {16, 0, false, 1.6, 1.5},  {32, 0, false, 1.8, 1.7}, {64, 0, false, 2.4, 2.0},
    {128, 0, false, 4.8, 3.0}, {16, 0, true, 0.24, 2.5}, {32, 0, true, 0.26, 3.0},
    {64, 1, false, 2.6, 2.5},  {128, 2, false, 2.7, 3.0}, {256, 2, false, 2.4, 3.5}};

KindCost CostOf(const PrefixKind& kind) {
  return *std::ranges::find_if(kKindCosts, [&](const KindCost& cost) {
    return cost.queries == kind.queries && cost.warpgroups == kind.warpgroups &&
           cost.few == kind.few;
  });
}

int CeilDiv(int a, int b) { return (a + b - 1) / b; }
int UnitsOf(const SequenceWork& work, const PrefixKind& kind) {
  return CeilDiv(work.num_keys(), kind.unit());
}

struct SpanChoice {
  PrefixKind kind = {0, 0};
  int span_units = 1;
  double cost = std::numeric_limits<double>::infinity();

};

// How the works' keys are best cut for one variant of the kernel.
class SpanChooser {
 public:
  SpanChooser(const std::vector<SequenceWork>& works, const AttentionShape& shape,
              const PrefixKind& kind)
      : works_(works), shape_(shape), kind_(kind) {
    for (const SequenceWork& work : works) longest_ = std::max(longest_, UnitsOf(work, kind));
  }

  // One round of long items, or several of shorter ones that waste less of the last round.
  SpanChoice Best() const {
    constexpr int kMostRounds = 4;
    const bool fills = kind_.warpgroups > 0 || kind_.few;
    const int resident = fills ? 1 : PrefixBlocks(PaddedHeadDim(shape_.head_dim));
    const int blocks = std::max(1, resident * shape_.multiprocessors / kind_.cluster());
    const KindCost cost = CostOf(kind_);
    SpanChoice best{.kind = kind_};
    for (int rounds = 1; rounds <= kMostRounds; ++rounds) {
      const int span = ShortestSpan(int64_t{rounds} * blocks);
      const auto items = static_cast<double>(NumItems(span));
      const double taken = std::max(static_cast<double>(rounds), items / blocks);
      const double total = taken * (span * cost.unit + cost.item);
      if (total < best.cost) best = {kind_, span, total};
    }
    return best;
  }

 private:
  int64_t NumItems(int span_units) const {
    int64_t items = 0;
    for (const SequenceWork& work : works_) {
      items += int64_t{shape_.kv_heads} * work.NumTiles(shape_.group, kind_.queries) *
               CeilDiv(UnitsOf(work, kind_), span_units);
    }
    return items;
  }
  // Whose items are at most this many, or the longest.
  int ShortestSpan(int64_t most_items) const {
    int low = 1, high = std::max(longest_, 1);
    while (low < high) {
      const int middle = (low + high) / 2;
      if (NumItems(middle) <= most_items) {
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
  int longest_ = 0;  // units
};

SpanChoice ChooseSpans(const std::vector<SequenceWork>& works, const AttentionShape& shape) {
  SpanChoice best;
  for (const PrefixKind& kind : KindsOf(shape)) {
    if (shape.tile_queries != 0 && kind.queries != shape.tile_queries) continue;
    const SpanChoice choice = SpanChooser(works, shape, kind).Best();
    if (choice.cost <= best.cost || shape.tile_queries != 0) best = choice;
  }
  return best;
}

// The spans of a sequence are of about the same length.
int SpanKeys(const SequenceWork& work, const SpanChoice& choice) {
  const int units = std::max(UnitsOf(work, choice.kind), 1);
  return CeilDiv(units, CeilDiv(units, choice.span_units)) * choice.kind.unit();
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

// The spans of one kv head and tile of queries. `counter`, if not negative: they merge in place.
void AddItems(AttentionItem item, int span, int group, int counter, AttentionPlan* plan) {
  int end = 0;
  item.full_end = INT32_MAX;
  for (int r = item.query_begin / group; r <= (item.query_end - 1) / group; ++r) {
    end = std::max(end, plan->rows[r].shared_len);
    item.full_end = std::min(item.full_end, plan->rows[r].prefix_len);
  }
  const int count = CeilDiv(end, span);
  if (counter >= 0) {
    item.counter = counter;
    item.arrivals = count;
  }
  for (int index = 0; index < count; ++index) {
    item.key_begin = index * span;
    item.key_end = std::min(end, item.key_begin + span);
    item.partial = index;
    plan->items.push_back(item);
  }
}

}  // namespace

void AddSpans(const std::vector<SequenceWork>& works, const AttentionShape& shape,
              AttentionPlan* plan) {
  const SpanChoice choice = ChooseSpans(works, shape);
  plan->tile_queries = choice.kind.queries;
  plan->warpgroups = choice.kind.warpgroups;
  plan->few = choice.kind.few;
  const bool in_place = MergesInPlace(plan->tile_queries, static_cast<int>(plan->rows.size()),
                                      static_cast<int>(works.size()), shape.group, shape.kv_heads);
  int counter = 0;
  for (const SequenceWork& work : works) {
    const int span = SpanKeys(work, choice);
    PlacePartials(work, span, plan);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int query = work.row_begin * shape.group; query < work.row_end * shape.group;
           query += plan->tile_queries) {
        const AttentionItem item = work.ItemOf(head, query, shape, plan->tile_queries);
        AddItems(item, span, shape.group, in_place ? counter++ : -1, plan);
      }
    }
  }
  // Nodes come with the pass and take longest to arrive; the tiles that read the same keys stand
  // together, so that the second finds them in the cache.
  std::ranges::stable_sort(plan->items, [](const AttentionItem& a, const AttentionItem& b) {
    return a.partial > b.partial;
  });
}

}  // namespace talon::cuda
