// An item (attention_work.h) in the kernels: its queries, and where its keys are stored.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_ITEM_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_ITEM_CUH_

#include <cstdint>

#include "compute/cuda/attention/args.cuh"

namespace talon::cuda {

inline constexpr int kNoVector = INT32_MIN;

// A query of the block's tile.
struct QuerySlot {
  int64_t offset;  // offset of its vector in q, or -1: no query
  int32_t limit;   // it sees the keys before this one
  int32_t state;   // its state's index, or -1: none to write
  int64_t out;     // its result's offset
};

// Fills the slots of an item's queries [begin, end) by kThreads threads.
template <int kThreads>
__device__ __forceinline__ void FillSlots(const AttentionArgs& args, const AttentionItem& item,
                                          int begin, int end, int thread, QuerySlot* slots) {
  for (int i = begin + thread; i < end; i += kThreads) {
    QuerySlot slot = {-1, 0, -1, 0};
    const int query = item.query_begin + i;
    if (query < item.query_end) {
      const int row_index = query / args.group;
      const int head = item.kv_head * args.group + query % args.group;
      const AttentionRow row = args.plan.attention_rows[row_index];
      slot.offset = row_index * args.q_stride + head * args.head_dim;
      slot.out = row_index * args.out.stride + head * args.head_dim;
      slot.limit = item.chunk < 0 ? row.prefix_len : row.shared_len;
      const int first = item.chunk < 0 ? item.partial * row.span : item.key_begin;
      if (row.shared_len > first) {
        slot.state = (row.partial_begin + item.partial) * args.heads() + head;
      }
    }
    slots[i] = slot;
  }
}

// The keys of an item: where they are stored and which queries see them.
struct ItemKeys {
  const AttentionArgs& args;
  const AttentionItem& item;
  const int32_t* blocks;

  __device__ ItemKeys(const AttentionArgs& args_in, const AttentionItem& item_in)
      : args(args_in), item(item_in) {
    int first = item.blocks;
    if (first < 0) {
      first = args.plan.block_offsets[~first + args.layer * args.kv_heads + item.kv_head];
    }
    blocks = args.plan.block_ids + first;
  }
  __device__ ItemKeys(const AttentionArgs& args_in, const AttentionItem& item_in,
                      const int32_t* blocks_in)
      : args(args_in), item(item_in), blocks(blocks_in) {}
  __device__ int VectorOf(int key) const {
    if (key >= item.key_end) return kNoVector;
    if (key < item.prefix_end) return args.VectorOfKey(blocks, key, item.kv_head);
    const int place = args.plan.node_places[item.nodes + key - item.prefix_end];
    return args.VectorOf(place, item.kv_head);
  }
  __device__ const uint64_t* MaskOf(int query) const {
    const int64_t row = (item.query_begin + query) / args.group;
    return args.plan.ancestors + row * args.plan.mask_words;
  }
  // The visible keys among the kTileKeys keys from `first` on.
  __device__ uint64_t VisibleFrom(const QuerySlot& slot, int query, int first) const {
    const uint64_t keys = FirstKeys(slot.limit - first);
    if (slot.offset < 0 || first + kTileKeys <= item.prefix_end) return keys;
    return keys | NodeKeys(MaskOf(query), args.plan.mask_words, first - item.prefix_end);
  }
};

// The part of a query's mask that covers the keys from `first` on, prefetched. The four
// neighbouring lanes that share a query hold a word each.
struct MaskWindow {
  static constexpr int kMostKeys = 3 * kTileKeys;  // for any offset of the first key in a word
  uint64_t word;

  __device__ __forceinline__ void Load(const ItemKeys& keys, const QuerySlot& slot, int query,
                                       int first) {
    const int count = slot.offset < 0 ? 0 : keys.args.plan.mask_words;
    const int begin = MaskWordOf(first - keys.item.prefix_end);
    word = MaskWord(keys.MaskOf(query), count, begin + static_cast<int>(threadIdx.x) % 4);
  }
  // The keys of tile `tile` that the query sees. Called by all lanes.
  __device__ __forceinline__ uint64_t Visible(const AttentionItem& item, const QuerySlot& slot,
                                              int first, int tile) const {
    const int begin = first + tile * kTileKeys;
    const uint64_t low = __shfl_sync(0xffffffffu, word, tile, 4);
    const uint64_t high = __shfl_sync(0xffffffffu, word, tile + 1, 4);
    return (FirstKeys(slot.limit - begin) | KeysOfWords(low, high, first - item.prefix_end)) &
           FirstKeys(item.key_end - begin);
  }
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_ITEM_CUH_
