// Rank 0's side of several: what its decoder and its KV caches do, the other ranks do too.
//
// Passes and KV ops are sent as they are, because block tables, slots and staging rows are the same
// on every rank; only the heads differ. After each pass the ranks compare a hash of everything sent
// so far and of the activations, which are whole on every rank. An idle leader pings the others, so
// that they know it is there, and it notices when one is gone.
//
// A rank that is gone, slow beyond the deadline or different throws DeviceFault; `lost` is called
// instead where a ping found out.
#ifndef TALON_MODEL_RANKS_LEADER_H_
#define TALON_MODEL_RANKS_LEADER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "compute/kv_ops.h"
#include "compute/pass_plan.h"
#include "compute/ranks/ranks.h"
#include "model/ranks/messages.h"

namespace talon {

class RankLeader : public KvOps {
 public:
  using Lost = std::function<void(const std::string& reason)>;
  // `own`: the KV ops of this rank. Both must outlive the leader.
  RankLeader(Ranks* ranks, KvOps* own) : ranks_(ranks), own_(own) {}
  ~RankLeader() override;  // ends the other ranks

  // Pings the others every `seconds` from now on.
  void StartPings(double seconds, Lost lost);

  // What the other ranks have allocated, by rank from 1 on.
  std::vector<RankBytes> MemoryOfOthers();
  // The other ranks make room for scores of this many blocks.
  void ReserveScores(int max_blocks);
  // The other ranks begin a pass. No ping comes between as long as the lock is held.
  [[nodiscard]] std::unique_lock<std::mutex> BeginPass(const PassPlan& plan, const KvView& kv);
  // They have ended it: compares their hashes with this rank's.
  void EndPass(uint64_t activations);

  // Run `own`, this rank's part of a projection or of a pass's exchanges, while the others run
  // theirs. `hidden`: rows of `cols` values, in host memory.
  void Project(std::span<const float> hidden, int cols, const std::function<void()>& own);
  void Exchange(int rows, const std::function<void()>& own);

  void CommitRows(const KvView& kv, std::span<const int32_t> rows, std::span<const int32_t> slots,
                  int num_layers) override;
  void CopySlots(const KvView& kv, std::span<const int32_t> from,
                 std::span<const int32_t> to) override;
  void CopyBlock(const KvView& kv, int from, int to, int tokens) override;
  void CopyStaged(const KvView& kv, std::span<const int32_t> from,
                  std::span<const int32_t> to) override;
  void SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) override;
  void ForgetCache(const KvView& kv) override;

  // Not of several ranks.
  void StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv, int layer) override;
  void CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                 int first) override;
  void ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                   MatrixView out) override;
  void ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) override;
  std::span<const int32_t> ChosenColumns() override;

 private:
  // Tells the others what `put` writes behind the cache's id, then does this rank's part.
  template <typename Put, typename Own>
  void Relay(RankCommand command, const KvView& kv, const Put& put, const Own& own);

  // The rest requires the lock.
  void Tell(RankCommand command, const MessageWriter& message);
  void BeginMessage();
  // The same about a cache, which the others learn of before.
  void BeginMessage(const KvView& kv);
  void Ping();
  void PingLoop(double seconds, const Lost& lost);
  // Runs `talk`; when it throws, the other ranks are not spoken to any more.
  template <typename F>
  void Talk(const F& talk);
  void PutMoves(std::span<const int32_t> from, std::span<const int32_t> to);

  Ranks* ranks_;
  KvOps* own_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  bool busy_ = false;          // a pass has begun since a ping was due
  std::string fault_;          // why the ranks cannot go on; empty: they can
  bool in_pass_ = false;       // the others have not ended their pass
  std::set<uint64_t> caches_;  // caches that the others have (IdentityOf)
  MessageWriter message_;
  RankHash hash_;
  std::thread pings_;
};

}  // namespace talon

#endif  // TALON_MODEL_RANKS_LEADER_H_
