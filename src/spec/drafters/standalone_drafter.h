// STANDALONE: a small full model drafts a chain or a dynamic tree. Chains are greedy or, for
// rejection acceptance, drawn at the request's temperature from the 64 most likely tokens, with the
// distribution sent along; so are trees, where the option is set (drawn_tree.h).
//
// The draft model has a KV cache of its own. Tokens it has seen stay there as long as the sequence
// agrees with them: Propose rewinds to the longest common prefix, feeds what is missing, and goes
// on from the last row's logits. So nothing needs to be undone after a rejection, and a sequence
// that was not drafted for a while catches up by itself.
#ifndef TALON_SPEC_DRAFTERS_STANDALONE_DRAFTER_H_
#define TALON_SPEC_DRAFTERS_STANDALONE_DRAFTER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/draft_cache.h"
#include "spec/drafter.h"
#include "spec/drafters/tree_growth.h"
#include "spec/plan.h"

namespace talon {

struct StandaloneOptions {
  std::string model_path;
  DraftBudget budget;  // the largest it will be asked for
  float min_prob = 0;
  bool sample = false;  // chains of requests with a temperature are drawn at random
  // Trees too; and each request has its own shape. For draft workers, whose clients differ.
  bool drawn_trees = false;
  int vocab_size = 0;     // the target's
  DraftCacheShape cache;  // but for block size and type, which are the drafter's own
  WeightFormat weights = WeightFormat::kAsStored;
  ActivationFormat activations = ActivationFormat::kAuto;
};

class StandaloneDrafter : public Drafter {
 public:
  // A draft model of another vocabulary is refused with both sizes named.
  static Result<std::unique_ptr<StandaloneDrafter>> Load(const StandaloneOptions& options,
                                                         Backend* backend, Metrics* metrics);

  std::string_view name() const override { return "STANDALONE"; }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override;
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int) override {}
  void End(SequenceId sequence) override;

 private:
  StandaloneDrafter(const StandaloneOptions& options, Backend* backend, Metrics* metrics)
      : options_(options),
        backend_(backend),
        metrics_(metrics),
        level_times_{.clock = &backend->time()} {}

  // One sequence's way through a Propose.
  struct Drafting {
    const DraftRequest* request = nullptr;
    TokenTree* tree = nullptr;
    Sequence* sequence = nullptr;  // the draft model's
    size_t place = 0;              // in first_
    int tip = 0;                   // chains: the last node
    double reach = 1;              // and the chance that the target gets there
  };

  // The next `count` tokens of a sequence that the draft model has not seen.
  struct Feed {
    Sequence* sequence = nullptr;
    int count = 0;
    bool logits = false;  // logits of the last one are wanted
  };

  Status CatchUp(std::vector<Drafting>* batch);
  Status FeedChunk(std::vector<Drafting>* batch, bool* done);
  Status DraftAlike(std::vector<Drafting>* batch);
  Status DraftEach(std::vector<Drafting>* batch);
  Status DraftChains(std::vector<Drafting>* batch);
  Status DraftTrees(std::vector<Drafting>* batch);
  Status DraftDrawn(const Drafting& one);
  bool HasRoomForMore(const std::vector<Drafting>& group, int branches) const;
  // The best successors of a sequence's root.
  std::span<const TopKEntry> FirstOf(const Drafting& one, int count) const;
  // Adds the chain's next node from the best successors of its tip; false on NaN.
  bool ExtendChain(std::span<const TopKEntry> best, Drafting* one);
  int BranchesOf(const DraftRequest& request) const;
  // Successors to rank per row.
  int RankedSuccessors() const;
  Status RunFeeds(const std::vector<Feed>& feeds, int top_k, std::vector<TopKEntry>* best);
  // The pass in builder_, and the best successors of each row with logits.
  Status RunPass(int top_k, std::vector<TopKEntry>* best);
  void GiveUp(std::vector<Drafting>* batch, const std::string& reason, const std::string& why);

  StandaloneOptions options_;
  Backend* backend_;
  Metrics* metrics_;
  Metrics own_metrics_;  // the draft cache's, kept apart from the target's
  std::unique_ptr<Decoder> model_;
  std::unique_ptr<KvCache> kv_;
  std::map<SequenceId, Sequence> sequences_;
  PassBuilder builder_;
  LevelTimes level_times_;
  std::vector<TopKEntry> first_;  // [batch * RankedSuccessors()] successors of the roots
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_STANDALONE_DRAFTER_H_
