// A rank above 0: does what the leader says (leader.h) until the leader ends.
#ifndef TALON_MODEL_RANKS_FOLLOWER_H_
#define TALON_MODEL_RANKS_FOLLOWER_H_

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/ranks/ranks.h"
#include "model/decoder.h"
#include "model/ranks/messages.h"

namespace talon {

class RankFollower {
 public:
  // All must outlive the follower.
  RankFollower(Ranks* ranks, Decoder* decoder, Backend* backend)
      : ranks_(ranks), decoder_(decoder), backend_(backend) {}

  // OK when the leader has ended; else why this rank cannot go on.
  Status Run();

 private:
  // The memory of one of the leader's caches, for this rank's heads.
  struct Cache {
    KvShape shape;
    std::vector<Buffer> buffers;
    std::vector<KvLayer> layers;
    KvView view() const { return {shape, layers}; }
  };

  bool RunCommand();  // false: the leader has ended
  void TellMemory() const;
  void NewCache(MessageReader* message);
  void RunPass(MessageReader* message);
  void Project(MessageReader* message);
  void RunKvOp(RankCommand command, MessageReader* message);
  KvView CacheOf(MessageReader* message);

  Ranks* ranks_;
  Decoder* decoder_;
  Backend* backend_;
  std::map<uint64_t, Cache> caches_;  // by the leader's IdentityOf
  RankHash hash_;
  std::vector<uint8_t> bytes_;
};

}  // namespace talon

#endif  // TALON_MODEL_RANKS_FOLLOWER_H_
