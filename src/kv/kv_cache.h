// The paged KV cache and its transaction.
//
// Contract: a token is in a block only if it was verified, accepted and is in the sequence. Between
// steps `blocks` cover exactly `committed_len` tokens. A pass writes staged rows only; Commit
// copies the accepted ones of all layers into slots and only then advances the sequence. Prompts
// are verified by definition: their rows go straight to reserved slots, and Advance makes them part
// of the sequence. Every mutator either succeeds as a whole or leaves the sequence as it was.
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
#include "compute/backend.h"
#include "kv/block_pool.h"
#include "observe/metrics.h"

namespace talon {

// One sequence's tokens and where their K/V is. While it runs, tokens.size() == committed_len + 1:
// the last token is the root. Changed by KvCache only, but for tokens appended by the engine.
struct Sequence {
  SequenceId id = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;  // [ceil(committed_len / block_size)]
  int committed_len = 0;        // C
};

// Slots for tokens that are about to be written past a sequence's committed length.
struct Reservation {
  std::vector<int32_t> slots;        // [count] of positions C, C + 1, ...
  std::vector<int32_t> new_blocks;   // allocated for them, owned by the reservation
  bool replaces_last_block = false;  // new_blocks[0] is a private copy of a shared last block
};

struct KvOptions {
  bool audit = false;  // hash committed slots; CheckAudit fails loudly if one ever changes
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> Create(Backend* backend, const KvShape& shape,
                                                 Metrics* metrics, const KvOptions& options = {});

  const KvShape& shape() const { return shape_; }
  KvView view() const { return {shape_, layers_}; }
  int free_blocks() const { return pool_.free_blocks(); }
  int used_blocks() const { return pool_.num_blocks() - pool_.free_blocks(); }
  size_t bytes() const { return buffer_.bytes(); }
  // Blocks that `count` more tokens of this sequence would take from the pool.
  int BlocksNeeded(const Sequence& sequence, int count) const;

  // Rows written directly to blocks (prompts; tree rows when no-write-on-reject is off). A
  // reservation must end in exactly one Advance or Cancel.
  Result<Reservation> Reserve(const Sequence& sequence, int count);
  // The first `count` reserved slots, now written, become part of the sequence; other new blocks
  // are given back. `kind` is the metric's label: "prefill", or "commit" for rows moved into place.
  void Advance(Sequence* sequence, Reservation&& reservation, int count, const char* kind);
  void Cancel(Reservation&& reservation);

  // Staging: a pass over `rows` tree rows begins, then every layer reports the rows it staged, in
  // any order; staging a row twice overwrites it. Commits follow, then ClearStaging ends the step.
  // Failures: `busy` (not clear), `overflow`.
  Status BeginStaging(int rows);
  void MarkStaged(int layer, std::span<const int32_t> rows);
  void MarkAllStaged();  // every layer staged every row, as a complete pass does
  void ClearStaging();
  bool staging_clear() const { return staged_rows_ == 0; }

  // Copies staging rows, in path order, into the next slots of all layers and advances the
  // sequence. Fails without effect: `incomplete` (a row missing in some layer), no blocks, or a
  // fault.
  Status Commit(Sequence* sequence, std::span<const int32_t> rows);
  // The same for rows that were written to reserved slots (no-write-on-reject off): path[i] is an
  // index into reservation.slots. Consumes the reservation either way.
  Status CommitReserved(Sequence* sequence, Reservation&& reservation,
                        std::span<const int32_t> path);

  // Cuts the sequence to its first `length` committed tokens; no data moves. tokens is cut to
  // length + 1 where there are that many (the new root).
  Status Rewind(Sequence* sequence, int length);
  Sequence Fork(const Sequence& sequence, SequenceId id);
  void Free(Sequence* sequence);

  // Pool, references and block tables agree, given all live sequences and no open reservation.
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
  Status CheckStaged(std::span<const int32_t> rows) const;
  uint64_t SlotHash(int32_t slot) const;
  void CopyAudit(int32_t from_block, int32_t to_block, int tokens);
  void RecordAudit(const Sequence& sequence, int from);

  Backend* backend_;
  KvShape shape_;
  Metrics* metrics_;
  KvOptions options_;
  BlockPool pool_;
  Buffer buffer_;
  std::vector<KvLayer> layers_;

  int staged_rows_ = 0;                       // rows of the pass under way, 0 when clear
  std::vector<std::vector<uint8_t>> staged_;  // [layers][staging_rows] 1 = staged
  int fault_after_layers_ = -1;
  std::vector<uint64_t> audit_;  // [num_blocks * block_size], audit mode only
};

}  // namespace talon

#endif  // TALON_KV_KV_CACHE_H_
