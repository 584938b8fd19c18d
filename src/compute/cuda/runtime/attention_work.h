// How attention on the device is cut: the fixed bounds of its parts, and the records that the host
// makes for the kernels (attention_plan.h).
//
// Keys are handled in tiles of 64. The *prefix kernel* runs items: a run of a sequence's keys for
// many rows and the query heads of a kv head at once. It leaves one state (a "partial") for each
// row, query head and item. There are two ways to cut:
// - *Spans*: all keys of a sequence, the prefix and behind it the nodes, in runs of equal length,
//   as many as keep the device busy. Rows see of the nodes what their masks say. On Hopper the
//   items of a cluster's blocks, up to eight runs one after the other, make one partial. Partials
//   are merged by the last of a query's items to finish, or by the *merge kernel*.
// - *Chunks* (deterministic): keys have logical indices (pass_plan.h), tiles form chunks and chunks
//   form sections, whose bounds depend on the key's index alone. A row's result is built in one
//   fixed way: tile after tile into a chunk's state, chunk after chunk into a section's, section
//   after section into the whole. Who computes which part changes no bits: an item is a chunk or a
//   whole section of the shared part of a sequence's prefix; the *tail kernel* continues each row's
//   last, incomplete chunk with the keys it does not share, and merges its partials. The shared
//   part of a tree row is all whole tiles of its prefix; that of a prompt row is all its keys, each
//   row seeing only its own.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_
#define TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_

#include <cstddef>
#include <cstdint>

namespace talon::cuda {

inline constexpr int kTileKeys = 64;
inline constexpr int kSectionChunks = 4;
// Attention scratch: counters, then states: m, l, two unused floats, the accumulator [head_dim].
// Counters are zero between launches: the items taken, then the items that finished for each kv
// head and tile of queries that merge in place.
inline constexpr size_t kScratchHeaderBytes = 4096;
inline constexpr int kMaxMergeCounters = kScratchHeaderBytes / sizeof(int32_t) - 1;
inline constexpr int kStateHeader = 4;
inline constexpr int kMostClusterBlocks = 8;

// The prefix kernel has variants: PrefixKernel, and on Hopper FewQueriesKernel for few queries of a
// kv head and WarpgroupKernel for many.
enum class PrefixKernelKind : int32_t { kTiles, kFew, kWarpgroups };

// Chunks of 128 keys up to key 1024, of 256 up to 4096, of 512 up to 8192, then of 1024: short
// contexts give work to many multiprocessors, long ones leave few partials.
constexpr int ChunkOf(int key) {
  if (key < 1024) return key / 128;
  if (key < 4096) return 8 + (key - 1024) / 256;
  if (key < 8192) return 20 + (key - 4096) / 512;
  return 28 + (key - 8192) / 1024;
}
constexpr int ChunkBegin(int chunk) {
  if (chunk < 8) return chunk * 128;
  if (chunk < 20) return 1024 + (chunk - 8) * 256;
  if (chunk < 28) return 4096 + (chunk - 20) * 512;
  return 8192 + (chunk - 28) * 1024;
}
// Chunks and sections that the first `keys` keys reach into.
constexpr int NumChunks(int keys) { return keys == 0 ? 0 : ChunkOf(keys - 1) + 1; }
constexpr int NumSections(int keys) {
  return (NumChunks(keys) + kSectionChunks - 1) / kSectionChunks;
}

// Keys [key_begin, key_end) of a sequence for some of its queries in one kv head. Query q is head
// q % group of row q / group of the pass.
struct alignas(16) AttentionItem {
  int32_t kv_head = 0;
  int32_t query_begin = 0;
  int32_t query_end = 0;
  int32_t key_begin = 0;   // of a tile
  int32_t key_end = 0;     // not after key_begin: no work
  int32_t full_end = 0;    // every row of the item sees all keys before it
  int32_t prefix_end = 0;  // keys from here on are the sequence's nodes
  int32_t old_end = 0;     // keys before it are written neither by this pass nor just before it
  int32_t blocks = 0;      // where the block list starts, or ~list: one for each layer and kv head
  int32_t nodes = 0;       // where the places of the sequence's nodes start
  int32_t partial = 0;     // which of its rows' partials it makes
  int32_t chunk = -1;      // the first, or -1: a span
  int32_t counter = 0;     // of the items with the same queries and kv head
  int32_t arrivals = 0;    // partials that these make, or 0: they do not merge
};

// A row of the pass.
struct AttentionRow {
  int32_t sequence = 0;
  int32_t prefix_len = 0;
  int32_t shared_len = 0;  // keys that the prefix kernel handles
  int32_t num_keys = 0;    // prefix and ancestors
  int32_t partial_begin = 0;
  // Chunks: the first `sections` partials, or as many as it has, hold a section each, the others a
  // chunk.
  int32_t sections = 0;
  int32_t span = 0;  // keys of a partial, or 0: chunks

  constexpr int NumPartials() const {
    if (span > 0) return (shared_len + span - 1) / span;
    const int all_sections = NumSections(num_keys);
    if (all_sections <= sections) return all_sections;
    return PartialOf(NumChunks(num_keys));
  }
  // Of a chunk behind the sections.
  constexpr int PartialOf(int chunk) const { return chunk - sections * (kSectionChunks - 1); }
};

// Sets of keys of a tile, bit i: its key i. The first `count`:
constexpr uint64_t FirstKeys(int count) {
  if (count <= 0) return 0;
  return count >= kTileKeys ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}
// Masks are words of 64 nodes. The one that `node` lies in, also of nodes before the first:
constexpr int MaskWordOf(int node) { return node >> 6; }
constexpr uint64_t MaskWord(const uint64_t* mask, int mask_words, int word) {
  return word >= 0 && word < mask_words ? mask[word] : 0;
}
// A tile's keys, the first of which is `node`, of its word and the next.
constexpr uint64_t KeysOfWords(uint64_t word, uint64_t next, int node) {
  const int shift = node & 63;
  return shift == 0 ? word : word >> shift | next << (64 - shift);
}
// The nodes of a mask, where node `first` is the tile's key 0; negative: node 0 is its key -first.
constexpr uint64_t NodeKeys(const uint64_t* mask, int mask_words, int first) {
  const int word = MaskWordOf(first);
  return KeysOfWords(MaskWord(mask, mask_words, word), MaskWord(mask, mask_words, word + 1), first);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_
