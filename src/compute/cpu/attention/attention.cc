#include "compute/cpu/attention/attention.h"

#include <algorithm>
#include <limits>

#include "base/math.h"
#include "compute/cpu/attention/attention_mass.h"

namespace talon {
namespace {

// Below this many multiply-adds a pass is not worth waking the other threads.
constexpr int64_t kMinParallelWork = 1 << 16;

// The keys that rows of an item see are in [first, end).
struct KeyRange {
  int first = std::numeric_limits<int>::max();
  int end = 0;
};
KeyRange KeysOf(const AttentionPlan& plan, const AttentionItem& item) {
  KeyRange keys;
  for (int i = item.row_begin; i < item.row_end; ++i) {
    keys.first = std::min(keys.first, plan.rows[i].first_key);
    keys.end = std::max(keys.end, plan.rows[i].num_keys);
  }
  return keys;
}

// Tile by tile over all heads of the item, so that what lies side by side is read together.
void RunSplit(std::vector<QueryBlock>& blocks, int split, const KeyRange& keys) {
  for (QueryBlock& block : blocks) block.BeginSplit();
  const int first = std::max(keys.first / kTileKeys, split * kSplitTiles);
  const int end = std::min(CeilDiv(keys.end, kTileKeys), (split + 1) * kSplitTiles);
  for (int tile = first; tile < end; ++tile) {
    for (QueryBlock& block : blocks) block.RunTile(tile);
  }
}

void LoadBlocks(const AttentionCall& call, const AttentionItem& item, int first, int count,
                AttentionScratch::Thread* thread) {
  const int dim = PaddedDim(call.shape.head_dim);
  thread->arena.Clear();
  thread->tiles.Place(dim, &thread->arena);
  thread->blocks.clear();
  for (int head = item.head_begin; head < item.head_end; ++head) {
    AttentionState& state = thread->states[head - item.head_begin];
    state.Place(count, dim, &thread->arena);
    thread->blocks.emplace_back(call, item, QueryBlock::Range{head, first, count}, &thread->tiles,
                                &state);
  }
}

void RunItem(const AttentionCall& call, const AttentionItem& item, AttentionScratch::Thread* thread,
             AttentionPartials* partials) {
  const int queries = (item.row_end - item.row_begin) * call.group();
  const KeyRange keys = KeysOf(*call.plan, item);
  std::vector<QueryBlock>& blocks = thread->blocks;
  for (int first = 0; first < queries; first += kMaxTileRows) {
    LoadBlocks(call, item, first, std::min(queries - first, kMaxTileRows), thread);
    for (int split = item.split_begin; split < item.split_end; ++split) {
      RunSplit(blocks, split, keys);
      for (QueryBlock& block : blocks) block.StorePartials(split, partials);
    }
    if (item.split_end > 0) continue;
    for (int split = keys.first / kSplitKeys; split * kSplitKeys < keys.end; ++split) {
      RunSplit(blocks, split, keys);
      for (QueryBlock& block : blocks) block.MergeSplit(split);
    }
    for (QueryBlock& block : blocks) block.StoreOutputs();
  }
}

// Merges in place, into the row's first split.
void MergeRow(const AttentionCall& call, const AttentionRow& row, AttentionPartials* partials) {
  const int head_dim = call.shape.head_dim;
  for (int head = 0; head < call.heads(); ++head) {
    const Running total = partials->At(call, row, row.FirstSplit(), head);
    for (int split = row.FirstSplit() + 1; split < row.EndSplit(); ++split) {
      MergeRunning(partials->At(call, row, split, head), PaddedDim(head_dim), total);
    }
    AddSink(call, head, PaddedDim(head_dim), total);
    WriteOutput(total, head_dim, call.out.data + row.row * call.out.stride + head * head_dim);
  }
}

}  // namespace

void AttentionScratch::Reserve(int num_threads, const AttentionCall& call) {
  const int dim = PaddedDim(call.shape.head_dim);
  const auto kv_heads = static_cast<size_t>(call.shape.kv_heads);
  threads_.resize(std::max(threads_.size(), static_cast<size_t>(num_threads)));
  for (Thread& thread : threads_) {
    thread.arena.Reserve(AttentionTiles::Floats(dim) + kv_heads * AttentionState::Floats(dim));
    thread.states.resize(std::max(thread.states.size(), kv_heads));
    thread.blocks.reserve(kv_heads);
  }
  partials_.Reserve(int64_t{call.plan->num_partials} * call.heads(), dim);
}

void RunAttention(ThreadPool& pool, const AttentionCall& call, AttentionScratch* scratch) {
  const AttentionPlan& plan = *call.plan;
  const int head_dim = call.shape.head_dim;
  scratch->Reserve(pool.num_threads(), call);
  if (call.masses != nullptr) call.masses->Begin(call);
  const auto run_item = [&](int64_t task, int thread) {
    RunItem(call, plan.items[task], &scratch->thread(thread), &scratch->partials());
  };
  const auto merge_row = [&](int64_t task, int thread) {
    MergeRow(call, plan.rows[plan.merge_rows[task]], &scratch->partials());
  };
  const auto num_items = static_cast<int64_t>(plan.items.size());
  const auto num_merges = static_cast<int64_t>(plan.merge_rows.size());
  if (plan.row_keys * call.heads() * head_dim < kMinParallelWork) {
    for (int64_t i = 0; i < num_items; ++i) run_item(i, 0);
    for (int64_t i = 0; i < num_merges; ++i) merge_row(i, 0);
  } else {
    pool.Run(num_items, run_item);
    pool.Run(num_merges, merge_row);
  }
  if (call.masses != nullptr) call.masses->Write(pool, call);
}

}  // namespace talon
