// Partitioning of attention on the device: the fixed bounds of its parts, and the records that the
// host writes for the kernels (attention/plan.h).
//
// Keys have logical indices (pass_plan.h). Tiles of 64 keys form chunks and chunks form sections,
// whose bounds depend on the key's index alone. A row's result is reduced in one fixed order: tiles
// into a chunk's state, chunks into a section's, sections into the result. So its bits depend on
// the row and its keys alone, not on which block computes which part, nor on the other rows.
//
// The *prefix kernel* runs items: some chunks or whole sections of a sequence's keys for many rows
// and the query heads of a kv head at once. It writes a softmax state (a "partial") for each of
// these, and for each of the rows and query heads. The *tail kernel* continues the last, incomplete
// chunk of a tree's row with the keys that the tree's rows do not share, and merges all partials.
// The shared part of a tree row is all whole tiles of its prefix; that of a prompt row, or of a
// sequence's only row, is all its keys, of which each row sees only its own.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_
#define TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_

#include <cstddef>
#include <cstdint>

#include "base/math.h"

namespace talon::cuda {

inline constexpr int kTileKeys = 64;
inline constexpr int kSectionChunks = 4;
// Attention scratch: the number of items that PrefixKernel has taken, zero between launches, zeros,
// then states of m, l, two unused floats and the accumulator [head_dim].
inline constexpr size_t kScratchHeaderBytes = 256;
inline constexpr int kStateHeader = 4;

// Variants of the prefix kernel: PrefixKernel, and on Hopper WarpgroupKernel for many queries of a
// kv head or long contexts.
enum class PrefixKernelKind : int32_t { kTiles, kWarpgroups };

// Chunks have 128 keys up to key 1024, then every octave [2^n, 2^(n + 1)) has eight of equal
// length: short contexts give work to many SMs, long ones produce few partials.
constexpr int kFirstChunkKeys = 128;
constexpr int kOctaveChunks = 8;
constexpr int OctaveOf(int key) {  // 0 for all keys before 1024
  int octave = 0;
  while (key >> octave >= kOctaveChunks * kFirstChunkKeys) ++octave;
  return octave;
}
constexpr int ChunkOf(int key) {
  const int octave = OctaveOf(key);
  if (octave == 0) return key / kFirstChunkKeys;
  const int length = kFirstChunkKeys << (octave - 1);  // the octave begins with 8 such lengths
  return octave * kOctaveChunks + key / length - kOctaveChunks;
}
constexpr int ChunkBegin(int chunk) {
  const int octave = chunk / kOctaveChunks;
  if (octave == 0) return chunk * kFirstChunkKeys;
  return (kOctaveChunks + chunk % kOctaveChunks) * (kFirstChunkKeys << (octave - 1));
}
// Number of chunks and sections that cover the first `keys` keys.
constexpr int NumChunks(int keys) { return keys == 0 ? 0 : ChunkOf(keys - 1) + 1; }
constexpr int NumSections(int keys) { return CeilDiv(NumChunks(keys), kSectionChunks); }

// Keys [key_begin, key_end) of a sequence for some of its queries in one kv head. Query q is head q
// % group of row q / group of the pass.
struct alignas(16) AttentionItem {
  // WarpgroupKernel. An item of PrefixKernel is for every kv head: what a block takes is an index
  // of an item and a kv head (ItemAt).
  int32_t kv_head = 0;
  int32_t query_begin = 0;
  int32_t query_end = 0;
  int32_t key_begin = 0;  // start of a tile
  int32_t key_end = 0;
  int32_t full_end = 0;    // every row of the item sees all keys before this one
  int32_t prefix_end = 0;  // keys from here on are the sequence's nodes
  int32_t old_end = 0;     // no kernel that PDL overlaps writes keys before this one
  int32_t blocks = 0;      // start of the block list, or ~list: one list per layer and kv head
  int32_t nodes = 0;       // start of the sequence's entries in node_places
  int32_t partial = 0;     // index of its first among its rows' partials
  int32_t chunk = 0;       // first chunk
  int32_t merges = 0;      // 1: the chunks of a section make one partial, 0: each makes its own
  int32_t next = -1;       // WarpgroupKernel: the block's next item, or -1
};

// A row of the pass.
struct AttentionRow {
  int32_t sequence = 0;
  int32_t prefix_len = 0;
  int32_t shared_len = 0;  // keys that the prefix kernel handles
  int32_t num_keys = 0;    // prefix and ancestors
  int32_t partial_begin = 0;
  // Each of the first `sections` partials (or of all, if fewer) holds a section, each of the others
  // a chunk.
  int32_t sections = 0;

  constexpr int NumPartials() const {
    const int all_sections = NumSections(num_keys);
    if (all_sections <= sections) return all_sections;
    return PartialOf(NumChunks(num_keys));
  }
  // Partial of a chunk that comes after the sections.
  constexpr int PartialOf(int chunk) const { return chunk - sections * (kSectionChunks - 1); }
};

// The first `count` keys of a tile as a set: bit i for key i.
constexpr uint64_t FirstKeys(int count) {
  if (count <= 0) return 0;
  return count >= kTileKeys ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_ATTENTION_WORK_H_
