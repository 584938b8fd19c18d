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
// Every byte that is written counts where it goes: kv_bytes_written_total (blocks) and
// kv_bytes_staged_total (staging rows).
//
// Where the shape asks for key summaries, every full block has one.
//
// With the prefix index full blocks are known by their tokens: they outlive their sequences as long
// as there is room, and new ones can attach them. A known block never changes: a sequence that was
// cut inside one goes on with a copy.
//
// The books of blocks (pool()), of staging rows and tails (staging()), the prefix index (prefix())
// and the audit (audit()) are objects of their own; what moves K/V is here.
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
#include "compute/kv_ops.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"
#include "kv/audit.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "kv/sequence.h"
#include "kv/staging.h"
#include "kv/view_copies.h"
#include "observe/metrics.h"

namespace talon {

class Backend;

// Slots for tokens that are about to be written past a sequence's committed length.
struct Reservation {
  std::vector<int32_t> slots;        // [count] of positions C, C + 1, ...
  std::vector<int32_t> new_blocks;   // allocated for them, owned by the reservation
  bool replaces_last_block = false;  // new_blocks[0] is a private copy of a shared last block
};

struct KvOptions {
  bool offload = false;  // blocks lie where there is more room (Placement::kOffloaded)
  bool audit = false;    // hash committed slots; KvAudit::Check fails if one ever changes
  // Staging rows for tails, behind the shape's staging rows, which passes share.
  int tail_regions = 0;  // sequences that can have a tail at a time
  int tail_rows = 0;     // rows of a region: tail and tree of a partial pass
  // With offloaded blocks: those of a partial view that are kept where they are read fast, a copy
  // for each tail region.
  int view_blocks = 0;
  bool prefix_index = false;
  KvOps* ops = nullptr;  // ops that move its K/V (Decoder::kv_ops); null: the backend's
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> Create(Backend* backend, const KvShape& shape,
                                                 Metrics* metrics, const KvOptions& options = {});

  ~KvCache() { ops_->ForgetCache({shape_, layers_}); }

  KvOps* ops() const { return ops_; }
  const KvShape& shape() const { return shape_; }  // staging_rows include the tails
  // For ops: all that was committed is there.
  KvView view() {
    CopyCommitted();
    return {shape_, layers_};
  }
  size_t bytes() const { return blocks_.bytes() + side_.bytes() + copies_.bytes(); }
  // Blocks that `count` more tokens of this sequence would take from the pool.
  int BlocksNeeded(const Sequence& sequence, int count) const;

  // Rows written directly to blocks (prompts; tree rows when no-write-on-reject is off, or a step
  // falls back). A reservation must end in exactly one Advance or Cancel.
  Result<Reservation> Reserve(const Sequence& sequence, int count);
  // All reserved slots are written; the first `count` become part of the sequence, other new blocks
  // are given back. `kind` is the metric's label: "prefill", "commit" for rows copied from staging,
  // "tree" for all rows of a tree.
  void Advance(Sequence* sequence, Reservation&& reservation, int count, const char* kind);
  void Cancel(Reservation&& reservation);

  // How many blocks are free, cached and used.
  const BlockPool& pool() const { return pool_; }
  // Which staging rows and tail regions are in use. Every pass begins and clears its rows there.
  StagingArea& staging() { return staging_; }
  const StagingArea& staging() const { return staging_; }
  // Blocks known by their tokens: attaches them to new sequences.
  PrefixCache& prefix() { return prefix_; }
  // Hashes of what was committed.
  const KvAudit& audit() {
    CopyCommitted();
    return audit_;
  }

  // Copies staging rows, in path order, into the next slots of all layers and advances the
  // sequence. Fails without effect: `incomplete` (some layer has not reported them), no blocks, or
  // a fault. The copy itself waits for CopyCommitted, so that the sequences of a step share one.
  Status Commit(Sequence* sequence, std::span<const int32_t> rows);
  void CopyCommitted();
  // The same for rows that were written to reserved slots (no-write-on-reject off): path[i] is an
  // index into reservation.slots. Consumes the reservation either way.
  Status CommitReserved(Sequence* sequence, Reservation&& reservation,
                        std::span<const int32_t> path);

  // Tails. A partial pass stages its tree at tail_first + tail_len + node; AppendTail adds the
  // nodes of an accepted path to the tail, or fails without effect (`incomplete`). The engine keeps
  // `tokens` in step. REQUIRES: StagingArea::OpenTail.
  Status AppendTail(Sequence* sequence, std::span<const int32_t> path);

  // Copies the blocks of a partial view to where they are read fast (view_copies.h) and opens the
  // sequence's tail. Returns their blocks in views(), until the tail is closed or the next copy.
  // Fails without effect if there are too many, or no views.
  Result<std::vector<int32_t>> CopyToView(Sequence* sequence, std::span<const int32_t> block_ids);
  KvView views() const { return copies_.view(); }

  // Appends a copy of the first `count` tokens of a known block, which are the sequence's next
  // ones. REQUIRES: full blocks only so far, count < block_size.
  Status AttachCopy(Sequence* sequence, int32_t block, int count);

  // Cuts the sequence to its first `length` committed tokens; no data moves. tokens is cut to
  // length + 1 where there are that many (the new root).
  Status Rewind(Sequence* sequence, int length);
  // The fork has the committed tokens only, and no tail.
  Sequence Fork(const Sequence& sequence, SequenceId id);
  void Free(Sequence* sequence);

  // Pool, references, block tables and tails agree, given all live sequences and no open
  // reservation.
  Status CheckIntegrity(std::span<const Sequence* const> sequences) const;

  // Tests: the next Commit fails after writing this many layers (-1 = never).
  void InjectCommitFault(int after_layers) { fault_after_layers_ = after_layers; }

 private:
  KvCache(Backend* backend, const KvShape& shape, Metrics* metrics, const KvOptions& options);

  void CountBytes(Counter counter, size_t rows, const char* kind);
  void SummariseFilled(const Sequence& sequence, int from);
  bool WritesToShared(const Sequence& sequence) const;

  Backend* backend_;
  KvOps* ops_;
  KvShape shape_;
  Metrics* metrics_;
  StagingArea staging_;
  KvAudit audit_;
  PrefixCache prefix_;
  BlockPool pool_;
  Buffer blocks_;
  Buffer side_;  // staging and summaries
  std::vector<KvLayer> layers_;
  ViewCopies copies_;
  // Staging rows that were committed and not copied yet, and their slots.
  std::vector<int32_t> committed_rows_;
  std::vector<int32_t> committed_slots_;
  int fault_after_layers_ = -1;
};

}  // namespace talon

#endif  // TALON_KV_KV_CACHE_H_
