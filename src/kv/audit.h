// Hashes of committed K/V: what was verified must never change.
#ifndef TALON_KV_AUDIT_H_
#define TALON_KV_AUDIT_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "compute/kv_view.h"
#include "kv/sequence.h"

namespace talon {

class Backend;

class KvAudit {
 public:
  // Off, it records and checks nothing.
  KvAudit(Backend* backend, bool on) : backend_(backend), on_(on) {}
  bool is_on() const { return on_; }
  // The cache to hash. REQUIRES: called once, before all others; the view's arrays stay.
  void Attach(const KvView& view);

  // The slots of committed tokens from `from` on were written.
  void Record(const Sequence& sequence, int from);
  // The first `tokens` slots of a block were copied to another one.
  void Copy(int32_t from_block, int32_t to_block, int tokens);
  // Committed slots still hold the bytes they were committed with.
  Status Check(const Sequence& sequence) const;
  // Hash of all committed K/V bytes of a sequence, in position order (tests).
  uint64_t ContentHash(const Sequence& sequence) const;

 private:
  // Calls `visit(position, slot, hash)` for the committed tokens from `from` on. A block is copied
  // from the device at once: a copy of each slot takes most of the time of an audited run.
  void VisitHashes(const Sequence& sequence, int from,
                   const std::function<void(int, int32_t, uint64_t)>& visit) const;
  std::vector<uint64_t> BlockHashes(int32_t block) const;  // one for each slot

  Backend* backend_;
  bool on_;
  KvView view_;
  std::vector<uint64_t> hashes_;  // [num_blocks * block_size], if it is on
};

}  // namespace talon

#endif  // TALON_KV_AUDIT_H_
