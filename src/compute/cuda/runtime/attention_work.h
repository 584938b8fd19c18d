// Partitioning of attention on the device: the fixed bounds of its parts, and the records that the
// host writes for the kernels (attention/plan.h).
//
// Keys are processed in tiles of 64. The *prefix kernel* runs items: a run of a sequence's keys for
// many rows and the query heads of a kv head at once. Each item writes one softmax state (a
// "partial") for each of its rows and query heads. There are two partitionings:
// - *Spans*: all keys of a sequence, the prefix followed by the nodes, in runs of equal length, as
//   many as keep the device busy (split-K over the keys, as in flash decoding). The rows' masks
//   select the visible nodes. On Hopper the items of a cluster's blocks, up to eight consecutive
//   runs, produce one partial. Partials are merged by the last of a query's items to finish, or by
//   the *merge kernel*.
// - *Chunks* (deterministic): keys have logical indices (pass_plan.h), tiles form chunks and chunks
//   form sections, whose bounds depend on the key's index alone. A row's result is reduced in one
//   fixed order: tiles into a chunk's state, chunks into a section's, sections into the result. The
//   bits do not depend on which block computes which part: an item is a chunk or a whole section of
//   the shared part of a sequence's prefix; the *tail kernel* continues each row's last, incomplete
//   chunk with the keys that it does not share, and merges its partials. The shared part of a tree
//   row is all whole tiles of its prefix; that of a prompt row is all its keys, of which each row
//   sees only its own.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_
#define TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_

#include <cstddef>
#include <cstdint>

namespace talon::cuda {

inline constexpr int kTileKeys = 64;
inline constexpr int kSectionChunks = 4;
// Attention scratch: counters, then states of m, l, two unused floats and the accumulator
// [head_dim]. Counters are zero between launches: first the number of items taken, then, for each
// kv head and tile of queries that merge in place, the number of finished items.
inline constexpr size_t kScratchHeaderBytes = 4096;
inline constexpr int kMaxMergeCounters = kScratchHeaderBytes / sizeof(int32_t) - 1;
inline constexpr int kStateHeader = 4;
inline constexpr int kMostClusterBlocks = 8;

// Variants of the prefix kernel: PrefixKernel, and on Hopper FewQueriesKernel for few queries of a
// kv head and WarpgroupKernel for many.
enum class PrefixKernelKind : int32_t { kTiles, kFew, kWarpgroups };

// Chunks have 128 keys up to key 1024, 256 up to 4096, 512 up to 8192, then 1024: short contexts
// give work to many SMs, long ones produce few partials.
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
// Number of chunks and sections that cover the first `keys` keys.
constexpr int NumChunks(int keys) { return keys == 0 ? 0 : ChunkOf(keys - 1) + 1; }
constexpr int NumSections(int keys) {
  return (NumChunks(keys) + kSectionChunks - 1) / kSectionChunks;
}

// Keys [key_begin, key_end) of a sequence for some of its queries in one kv head. Query q is head q
// % group of row q / group of the pass.
struct alignas(16) AttentionItem {
  int32_t kv_head = 0;
  int32_t query_begin = 0;
  int32_t query_end = 0;
  int32_t key_begin = 0;   // start of a tile
  int32_t key_end = 0;     // <= key_begin: no work
  int32_t full_end = 0;    // every row of the item sees all keys before this one
  int32_t prefix_end = 0;  // keys from here on are the sequence's nodes
  int32_t old_end = 0;     // no kernel that PDL overlaps writes keys before this one
  int32_t blocks = 0;      // start of the block list, or ~list: one list per layer and kv head
  int32_t nodes = 0;       // start of the sequence's entries in node_places
  int32_t partial = 0;     // index among its rows' partials
  int32_t chunk = -1;      // first chunk, or -1: a span
  int32_t counter = 0;     // shared by the items of the same queries and kv head
  int32_t arrivals = 0;    // partials of these items, or 0: they do not merge
};

// A row of the pass.
struct AttentionRow {
  int32_t sequence = 0;
  int32_t prefix_len = 0;
  int32_t shared_len = 0;  // keys that the prefix kernel handles
  int32_t num_keys = 0;    // prefix and ancestors
  int32_t partial_begin = 0;
  // Chunks: each of the first `sections` partials (or of all, if fewer) holds a section, each of
  // the others a chunk.
  int32_t sections = 0;
  int32_t span = 0;  // keys per partial, or 0: chunks

  constexpr int NumPartials() const {
    if (span > 0) return (shared_len + span - 1) / span;
    const int all_sections = NumSections(num_keys);
    if (all_sections <= sections) return all_sections;
    return PartialOf(NumChunks(num_keys));
  }
  // Partial of a chunk that comes after the sections.
  constexpr int PartialOf(int chunk) const { return chunk - sections * (kSectionChunks - 1); }
};

// Sets of keys of a tile, bit i for key i. FirstKeys: the first `count` keys.
constexpr uint64_t FirstKeys(int count) {
  if (count <= 0) return 0;
  return count >= kTileKeys ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}
// Masks consist of 64-bit words, one bit per node. MaskWordOf: index of the word of `node`, which
// may be negative.
constexpr int MaskWordOf(int node) { return node >> 6; }
constexpr uint64_t MaskWord(const uint64_t* mask, int mask_words, int word) {
  return word >= 0 && word < mask_words ? mask[word] : 0;
}
// Bits of a tile whose key 0 is `node`, from the node's mask word and the next.
constexpr uint64_t KeysOfWords(uint64_t word, uint64_t next, int node) {
  const int shift = node & 63;
  return shift == 0 ? word : word >> shift | next << (64 - shift);
}
// Bits of a tile from a mask: node `first` is the tile's key 0; where it is negative, node 0 is key
// -first.
constexpr uint64_t NodeKeys(const uint64_t* mask, int mask_words, int first) {
  const int word = MaskWordOf(first);
  return KeysOfWords(MaskWord(mask, mask_words, word), MaskWord(mask, mask_words, word + 1), first);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_
