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
  int32_t state;   // index of its first chunk's state, or -1: none to write
};

// Fills the slots of an item's queries [begin, end) by kThreads threads.
template <int kThreads>
__device__ __forceinline__ void FillSlots(const AttentionArgs& args, const AttentionItem& item,
                                          int begin, int end, int thread, QuerySlot* slots) {
  for (int i = begin + thread; i < end; i += kThreads) {
    QuerySlot slot = {-1, 0, -1};
    const int query = item.query_begin + i;
    if (query < item.query_end) {
      const int row_index = query / args.group;
      const int head = item.kv_head * args.group + query % args.group;
      const AttentionRow row = args.plan.attention_rows[row_index];
      slot.offset = row_index * args.q_stride + head * args.head_dim;
      slot.limit = row.shared_len;
      if (row.shared_len > item.key_begin) {
        slot.state = (row.partial_begin + item.partial) * args.heads() + head;
      }
    }
    slots[i] = slot;
  }
}

// Where an item's chunk goes: merged into its section's partial, or to a partial of its own.
struct ChunkTarget {
  int key_begin;  // first key of the partial
  int offset;     // distance of its state from the item's first
  bool is_first;  // the first chunk of the partial
  bool is_last;   // the last one, if the item does not end before it

  __device__ ChunkTarget(const AttentionArgs& args, const AttentionItem& item, int chunk) {
    const int chunks = item.merges != 0 ? kSectionChunks : 1;
    key_begin = ChunkBegin(chunk / chunks * chunks);
    offset = (chunk / chunks - item.chunk / chunks) * args.heads();
    is_first = chunk % chunks == 0;
    is_last = chunk % chunks == chunks - 1;
  }
  // Null: the query has none. A query whose keys end before a merged chunk merges its empty state.
  __device__ float* StateOf(const AttentionArgs& args, const QuerySlot& slot) const {
    if (slot.state < 0 || slot.limit <= key_begin) return nullptr;
    return args.State(slot.state + offset);
  }
};

// The keys of an item: where they are stored.
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
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_ITEM_CUH_
