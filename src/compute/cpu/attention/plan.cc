#include "compute/cpu/attention/plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/threads.h"

namespace talon {
namespace {

// Rows of a long prompt are cut into items of this many, which keeps a task's queries in the cache.
constexpr int kItemRows = 32;
// Above this many partial results per sequence and head, rows give enough parallel work instead.
constexpr int64_t kMaxPartials = 4096;
// Enough to balance the threads.
constexpr int kItemsPerThread = 4;

void AppendTreePlaces(const PassPlan& pass, int sequence, AttentionRow* row,
                      std::vector<int32_t>* places) {
  row->tree_begin = static_cast<int32_t>(places->size());
  for (int word = 0; word < pass.mask_words; ++word) {
    uint64_t bits = pass.ancestors[static_cast<size_t>(row->row) * pass.mask_words + word];
    for (; bits != 0; bits &= bits - 1) {
      places->push_back(pass.PlaceOf(sequence, word * 64 + std::countr_zero(bits)));
    }
  }
  const int tree_keys = static_cast<int>(places->size()) - row->tree_begin;
  row->num_keys = row->prefix_len + tree_keys;
}

// How many nodes from node 0 on the row sees without a gap.
int LeadingNodes(const PassPlan& pass, int row) {
  int nodes = 0;
  for (int word = 0; word < pass.mask_words; ++word) {
    const int ones =
        std::countr_one(pass.ancestors[static_cast<size_t>(row) * pass.mask_words + word]);
    nodes += ones;
    if (ones < 64) break;
  }
  return nodes;
}

// Length of the sequence's trunk: nodes 0, 1, .. that every node sees unless it is an earlier one
// of them itself. 0 where rows differ in what they see of the prefix.
int TrunkLength(const PassPlan& pass, int sequence) {
  const int first = pass.sequence_rows[sequence];
  const int end = pass.sequence_rows[sequence + 1];
  const int before = pass.nodes_before.empty() ? 0 : pass.nodes_before[sequence];
  int trunk = before + end - first;
  for (int r = first; r < end; ++r) {
    if (pass.prefix_len[r] != pass.prefix_len[first]) return 0;
    const int leading = LeadingNodes(pass, r);
    if (leading <= before + r - first) trunk = std::min(trunk, leading);
  }
  return trunk;
}

// The splits that hold keys of some of the rows.
struct SplitRange {
  int first = std::numeric_limits<int>::max();
  int end = 0;
  int count() const { return end - first; }
};
SplitRange SplitsOf(std::span<const AttentionRow> rows) {
  SplitRange range;
  for (const AttentionRow& row : rows) {
    range.first = std::min(range.first, row.FirstSplit());
    range.end = std::max(range.end, row.EndSplit());
  }
  return range;
}

}  // namespace

void AttentionPlan::Build(const PassPlan& pass, const KvShape& shape, int num_threads, int window) {
  rows.clear();
  tree_places.clear();
  items.clear();
  merge_rows.clear();
  num_partials = 0;
  row_keys = 0;
  for (int s = 0; s < pass.num_sequences(); ++s) {
    const int first_row = static_cast<int>(rows.size());
    AddRows(pass, s, window);
    AddItems(s, first_row, shape.kv_heads, num_threads);
  }
}

void AttentionPlan::AddRows(const PassPlan& pass, int sequence, int window) {
  const auto first = static_cast<ptrdiff_t>(rows.size());
  const int trunk = TrunkLength(pass, sequence);
  for (int r = pass.sequence_rows[sequence]; r < pass.sequence_rows[sequence + 1]; ++r) {
    AttentionRow row{.row = r, .prefix_len = pass.prefix_len[r]};
    row.shared_len = row.prefix_len + std::min(trunk, LeadingNodes(pass, r));
    AppendTreePlaces(pass, sequence, &row, &tree_places);
    TALON_CHECK(row.num_keys > 0, "attention: row {} sees no key", r);
    if (window > 0) row.first_key = std::max(0, row.num_keys - window);
    row_keys += row.num_keys - row.first_key;
    rows.push_back(row);
  }
  std::sort(rows.begin() + first, rows.end(), [](const AttentionRow& a, const AttentionRow& b) {
    return a.shared_len != b.shared_len ? a.shared_len < b.shared_len : a.row < b.row;
  });
}

void AttentionPlan::AddItems(int sequence, int first_row, int kv_heads, int num_threads) {
  const int end = static_cast<int>(rows.size());
  const SplitRange range = SplitsOf(std::span(rows).subspan(first_row));
  const int splits = range.count();
  const bool apart = splits > 1 && int64_t{splits} * (end - first_row) <= kMaxPartials;
  for (int i = first_row; apart && i < end; ++i) {
    rows[i].partial_begin = num_partials;
    num_partials += rows[i].EndSplit() - rows[i].FirstSplit();
    merge_rows.push_back(i);
  }
  // With splits enough for every thread, an item takes all heads of several: a block's heads lie
  // side by side, and memory is fastest when each thread reads one long stretch. So items come in
  // an order in which a thread's next one continues its last.
  const int shares = kItemsPerThread * num_threads;
  const bool all_heads = apart && splits >= shares;
  const int heads = all_heads ? kv_heads : 1;
  const int runs = !apart ? 0 : (all_heads ? shares : splits);
  for (int head = 0; head < kv_heads; head += heads) {
    for (int i = 0; i < runs; ++i) {
      const auto run = static_cast<int>(all_heads ? TaskInStretches(i, runs, num_threads) : i);
      items.push_back({sequence, head, head + heads, first_row, end,
                       range.first + run * splits / runs, range.first + (run + 1) * splits / runs});
    }
    for (int last = end; !apart && last > first_row; last -= kItemRows) {  // long rows first
      items.push_back({sequence, head, head + 1, std::max(first_row, last - kItemRows), last});
    }
  }
}

}  // namespace talon
