// REMOTE: drafts for the local engine from a draft worker, any number of sequences at once.
//
// Propose also requests drafts after each tree's longest path, so that the worker drafts while the
// engine verifies. If the worker fails, or its drafts do not pay, decoding is plain.
#ifndef TALON_REMOTE_REMOTE_DRAFTER_H_
#define TALON_REMOTE_REMOTE_DRAFTER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "observe/metrics.h"
#include "remote/draft_client.h"
#include "remote/links.h"
#include "remote/remote_timer.h"
#include "remote/vocab_bridge.h"
#include "spec/drafter.h"

namespace talon {

struct RemoteDrafterOptions {
  DraftClientOptions client;
  float draft_temperature = -1;  // -1: as each request's
  int vocab_size = 0;            // the target's
};

class RemoteDrafter : public Drafter {
 public:
  struct Parts {
    std::unique_ptr<DraftLink> link;
    std::unique_ptr<VocabBridge> bridge;  // null: one vocabulary
    RemoteTimer* timer = nullptr;         // not owned; null: the clock
    Metrics* metrics = nullptr;           // not owned; null: none
  };
  RemoteDrafter(Parts parts, const RemoteDrafterOptions& options);

  std::string_view name() const override { return "REMOTE"; }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override;
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override;
  void Rewind(SequenceId, int) override {}  // the next call carries the whole context
  void End(SequenceId sequence) override { sequences_.erase(sequence); }

 private:
  struct Drafted {
    std::optional<DraftStream> stream;  // from the first Propose on
    int path_length = -1;               // length of the last tree; -1: not proposed since Observe
    RemoteClock::time_point proposed;
  };

  DraftStream& StreamOf(const DraftRequest& request);
  TokenTree TreeFrom(DraftForest drafts, const DraftRequest& request) const;

  Parts parts_;
  RemoteDrafterOptions options_;
  RemoteTimer clock_;
  const std::string name_;  // prefix of this engine's session names
  DraftClient client_;
  double proposing_seconds_ = 0;  // time of the last Propose: all sequences waited that long
  std::map<SequenceId, Drafted> sequences_;
};

}  // namespace talon

#endif  // TALON_REMOTE_REMOTE_DRAFTER_H_
