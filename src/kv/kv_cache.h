// The paged KV cache and its transaction.
//
// Contract: a token is in a block only if it was verified, accepted and is in the sequence. Between
// steps `blocks` cover exactly `committed_len` tokens. A pass writes staged rows only; Commit
// copies the accepted ones of all layers into slots and only then advances the sequence. Prompts
// are verified by definition: their rows go straight to reserved slots, and Advance makes them part
// of the sequence. Every mutator either succeeds as a whole or leaves the sequence as it was.
//
// Tokens accepted under a partial view are provisional: their K/V stays in the sequence's tail, a
// region of staging that outlives the step, and never reaches a block. Whatever moves the committed
// length ends the tail.
//
// Where the shape asks for key summaries, every full block has one.
//
// With the prefix index full blocks are known by their tokens: they outlive their sequences as long
// as there is room, and Attach gives them to new ones. A known block never changes: a sequence that
// was cut inside one goes on with a copy.
//
// Not thread-safe: owned by the engine's thread.
#ifndef TALON_KV_KV_CACHE_H_
#define TALON_KV_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"
#include "kv/block_pool.h"
#include "kv/prefix_index.h"
#include "observe/metrics.h"

namespace talon {

class Backend;
class KvOps;

// One sequence's tokens and where their K/V is. While it runs, tokens.size() == committed_len +
// tail_len + 1: the last token is the root. Changed by KvCache only, but for tokens appended by the
// engine.
struct Sequence {
  SequenceId id = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;  // [ceil(committed_len / block_size)]
  int committed_len = 0;        // C
  int32_t tail_first = -1;      // first staging row of its tail region, -1 = it has none
  int tail_len = 0;             // P, provisional tokens at positions C, C + 1, ..
  int32_t prefix_root = PrefixIndex::kRoot;  // what its first block follows in the prefix index
  int indexed_blocks = 0;  // leading blocks that the index knows; -1: it must not learn them
};

// A run of staging rows.
struct StagedRows {
  int32_t first = 0;
  int32_t count = 0;
  int32_t end() const { return first + count; }
};

// Slots for tokens that are about to be written past a sequence's committed length.
struct Reservation {
  std::vector<int32_t> slots;        // [count] of positions C, C + 1, ...
  std::vector<int32_t> new_blocks;   // allocated for them, owned by the reservation
  bool replaces_last_block = false;  // new_blocks[0] is a private copy of a shared last block
};

struct KvOptions {
  bool offload = false;  // blocks lie where there is more room (Backend::AllocateOffloaded)
  bool audit = false;    // hash committed slots; CheckAudit fails loudly if one ever changes
  // Staging rows for tails, behind the shape's staging rows, which passes share.
  int tail_regions = 0;  // sequences that can have a tail at a time
  int tail_rows = 0;     // of a region: tail and tree of a partial pass
  // With offloaded blocks: those of a partial view that are kept where they are read fast, a copy
  // for each tail region.
  int view_blocks = 0;
  bool prefix_index = false;
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> Create(Backend* backend, const KvShape& shape,
                                                 Metrics* metrics, const KvOptions& options = {});

  const KvShape& shape() const { return shape_; }  // staging_rows include the tails
  KvView view() const { return {shape_, layers_}; }
  int free_blocks() const { return pool_.free_blocks(); }  // cached ones included
  int cached_blocks() const { return pool_.cached_blocks(); }
  int used_blocks() const { return pool_.num_blocks() - pool_.free_blocks(); }
  size_t bytes() const { return blocks_.bytes() + side_.bytes() + view_memory_.bytes(); }
  // Blocks that `count` more tokens of this sequence would take from the pool.
  int BlocksNeeded(const Sequence& sequence, int count) const;

  // Rows written directly to blocks (prompts; tree rows when no-write-on-reject is off). A
  // reservation must end in exactly one Advance or Cancel.
  Result<Reservation> Reserve(const Sequence& sequence, int count);
  // The first `count` reserved slots, now written, become part of the sequence; other new blocks
  // are given back. `kind` is the metric's label: "prefill", or "commit" for rows moved into place.
  void Advance(Sequence* sequence, Reservation&& reservation, int count, const char* kind);
  void Cancel(Reservation&& reservation);

  // Staging: a pass that stages `rows` begins, then every layer reports the rows it staged, in any
  // order; staging a row twice overwrites it. Commits follow, then ClearStaging ends the step; what
  // was appended to tails stays. Failures: `busy` (not clear), `overflow`.
  Status BeginStaging(std::span<const StagedRows> rows);
  Status BeginStaging(int rows);  // the first `rows`
  void MarkStaged(int layer, std::span<const int32_t> rows);
  void MarkAllStaged();  // every layer staged every row, as a complete pass does
  void ClearStaging();
  bool staging_clear() const { return num_staged_ == 0; }

  // Copies staging rows, in path order, into the next slots of all layers and advances the
  // sequence. Fails without effect: `incomplete` (a row missing in some layer), no blocks, or a
  // fault.
  Status Commit(Sequence* sequence, std::span<const int32_t> rows);
  // The same for rows that were written to reserved slots (no-write-on-reject off): path[i] is an
  // index into reservation.slots. Consumes the reservation either way.
  Status CommitReserved(Sequence* sequence, Reservation&& reservation,
                        std::span<const int32_t> path);

  // Tails. OpenTail gives the sequence a region (ResourceExhausted if all are taken), which it
  // keeps until CloseTail or Free. A partial pass stages its tree at tail_first + tail_len + node;
  // AppendTail adds the nodes of an accepted path to the tail, or fails without effect
  // (`incomplete`). DropTail empties it. The engine keeps `tokens` in step.
  Status OpenTail(Sequence* sequence);
  Status AppendTail(Sequence* sequence, std::span<const int32_t> path);
  void DropTail(Sequence* sequence) { sequence->tail_len = 0; }
  void CloseTail(Sequence* sequence);

  // Copies of partial views, where blocks are offloaded. CopyToView copies the blocks of each
  // (layer, kv head), layer by layer, beside other work (KvOps::CopyTiles) and opens the
  // sequence's tail. Returns their blocks in views(), the same for all, until the tail is closed or
  // the next copy. Fails without effect if there are too many, or no views.
  Result<std::vector<int32_t>> CopyToView(Sequence* sequence, std::span<const int32_t> block_ids);
  KvView views() const { return {view_shape_, view_layers_}; }

  // Gives a sequence that has known blocks only, or none, those that hold its next tokens, as far
  // as the prefix index knows them and `max_tokens` allows. Returns its length then.
  int Attach(Sequence* sequence, int max_tokens);
  // The known block that follows the sequence's last (full) one and begins with the sequence's next
  // block_size - 1 tokens, or PrefixIndex::kNone.
  int32_t FindSibling(const Sequence& sequence) const;
  // Appends a copy of the first `count` tokens of a known block, which are the sequence's next
  // ones. REQUIRES: full blocks only so far, count < block_size.
  Status AttachCopy(Sequence* sequence, int32_t block, int count);
  // Makes the sequence `length` tokens long, a multiple of block_size, without K/V for the new
  // ones: they must not be read. The index learns nothing more of it.
  Status Skip(Sequence* sequence, int length);

  // Cuts the sequence to its first `length` committed tokens; no data moves. tokens is cut to
  // length + 1 where there are that many (the new root).
  Status Rewind(Sequence* sequence, int length);
  // The fork has the committed tokens only, and no tail.
  Sequence Fork(const Sequence& sequence, SequenceId id);
  void Free(Sequence* sequence);

  // Pool, references, block tables and tails agree, given all live sequences and no open
  // reservation.
  Status CheckIntegrity(std::span<const Sequence* const> sequences) const;
  // Audit mode: committed slots still hold the bytes they were committed with.
  Status CheckAudit(const Sequence& sequence) const;
  // Hash of all committed K/V bytes of a sequence, in position order (tests).
  uint64_t ContentHash(const Sequence& sequence) const;

  // Tests: the next Commit fails after writing this many layers (-1 = never).
  void InjectCommitFault(int after_layers) { fault_after_layers_ = after_layers; }

 private:
  KvCache(Backend* backend, const KvShape& shape, Metrics* metrics, const KvOptions& options);

  int32_t SlotOf(const Sequence& sequence, int position) const {
    return sequence.blocks[position / shape_.block_size] * shape_.block_size +
           position % shape_.block_size;
  }
  KvLayer TakeArrays(uint8_t** blocks, uint8_t** side) const;
  Status AllocateViews();
  void SummariseFilled(const Sequence& sequence, int from) const;
  std::span<const int32_t> BlockTokens(const Sequence& sequence, int block) const;
  void IndexFull(Sequence* sequence);
  bool WritesToShared(const Sequence& sequence) const;
  Status CheckFits(const StagedRows& rows) const;
  Status CheckStaged(std::span<const int32_t> rows) const;
  Status CheckTails(std::span<const Sequence* const> sequences) const;
  uint64_t SlotHash(int32_t slot) const;
  void CopyAudit(int32_t from_block, int32_t to_block, int tokens);
  void RecordAudit(const Sequence& sequence, int from);

  Backend* backend_;
  KvOps* ops_;
  KvShape shape_;
  Metrics* metrics_;
  KvOptions options_;
  PrefixIndex index_;
  BlockPool pool_;
  Buffer blocks_;
  Buffer side_;  // staging and summaries
  std::vector<KvLayer> layers_;
  Buffer view_memory_;
  KvShape view_shape_;  // of no blocks where there are no views
  std::vector<KvLayer> view_layers_;

  int shared_rows_ = 0;                       // staging rows before the tails
  std::vector<int32_t> free_tails_;           // first staging rows of regions
  std::vector<StagedRows> staging_;           // rows of the pass under way, empty when clear
  int num_staged_ = 0;                        // how many they are
  std::vector<std::vector<uint8_t>> staged_;  // [layers][staging_rows] 1 = staged
  int fault_after_layers_ = -1;
  std::vector<uint64_t> audit_;  // [num_blocks * block_size], audit mode only
};

}  // namespace talon

#endif  // TALON_KV_KV_CACHE_H_
