// MERGED: several drafters propose, one tree is made of what is most likely to be accepted.
//
// Scores of different drafters mean different things, so each source has an online calibration:
// how often nodes of this depth and score were accepted when their parent was. A node that several
// sources propose has the estimate 1 - prod(1 - p).
//
// Sources are asked in order of what they cost. One that costs time is asked only where what it
// adds to the cheaper ones is worth it (source_worth.h).
//
// Where a device grows one source's trees ahead of the host, waiting for them would cost more than
// the union gains: there a sequence has either that source's tree, which the host has not seen, or
// the union of the others. Which one is better is learnt in the same way.
#ifndef TALON_SPEC_DRAFTERS_MERGED_DRAFTER_H_
#define TALON_SPEC_DRAFTERS_MERGED_DRAFTER_H_

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "spec/drafter.h"
#include "spec/drafters/source_worth.h"
#include "spec/policy/calibration.h"

namespace talon {

class MergedDrafter : public Drafter {
 public:
  struct Source {
    std::unique_ptr<Drafter> drafter;
    DraftBudget budget;  // the most it is asked for
  };
  // At most kMaxSources. Earlier sources win ties. `clock`, by which they are timed, must outlive
  // the drafter.
  explicit MergedDrafter(std::vector<Source> sources, const Clock& clock = SteadyClock::Get());

  std::string_view name() const override { return "MERGED"; }
  std::vector<std::string_view> source_names() const override;
  bool IsLookup() const override { return NumLookups() == members_.size(); }
  bool HasLookups() const override { return NumLookups() > 0 && !IsLookup(); }
  std::vector<int> capture_layers() const override;
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override;
  void Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) override;
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;
  bool GrowsAhead() const override { return GrowingAhead() < members_.size(); }
  std::vector<bool> BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                               std::span<TokenTree> trees) override;
  void PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) override;
  void FinishTrees(std::span<TokenTree> trees) override;
  void Extend(std::span<const CommittedRows> batch, MatrixView features) override;
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override;
  void Rewind(SequenceId sequence, int length) override;
  void End(SequenceId sequence) override;

  static constexpr int kMaxSources = 4;

 private:
  struct Member {
    Source source;
    Calibration calibration;
    SourceWorth worth;
  };
  // The union of all proposals: a tree whose nodes remember each source's score.
  struct Union {
    TokenTree tree;
    std::vector<std::array<float, kMaxSources>> scores;  // [nodes], -1: not proposed by the source
    std::vector<int32_t> depth;                          // [nodes]
    int cursor = -1;   // the last node on the target's path, -1: the path has left it
    int observed = 0;  // steps since it was made
    int emitted = 0;
  };
  // For which sequences a source was asked.
  struct Asking {
    std::vector<size_t> owners;  // the requests' indices
    std::vector<DraftRequest> requests;
    std::vector<TokenTree> trees;
  };
  // The step that began last: what was decided for it.
  struct Decisions {
    std::vector<SequenceId> sequences;
    // For each source that was weighed, what the sources before it promise: [sequences].
    std::array<std::vector<double>, kMaxSources> promised;
    std::array<std::vector<bool>, kMaxSources> asked;  // [sequences]
    Stopwatch watch;                                   // since it began
  };

  size_t NumLookups() const;
  std::vector<size_t> ByCost() const;
  // The source whose trees a device grows ahead; as many as there are: none.
  size_t GrowingAhead() const;
  std::vector<Union> NewStep(std::span<const DraftRequest> requests);
  // What came of the step before.
  void Settle();
  // The requests that a source is asked for: those that allow it and, if it is `weighed`, where it
  // pays.
  Asking Choose(size_t index, bool weighed, std::span<const DraftRequest> requests,
                std::span<const Union> unions);
  void Ask(size_t index, std::span<const DraftRequest> requests, std::vector<Union>* unions);
  static void Add(size_t source, const TokenTree& proposal, Union* united);
  double Estimate(const Union& united, int node) const;
  // The drafts of a union that are worth a row, and how many of them the target accepts.
  struct Promise {
    double rows = 0;
    double tokens = 0;
  };
  Promise PromiseOf(const Union& united, const StepPrices& prices) const;
  double RowsOf(std::span<const Union> unions, const Asking& asking,
                const StepPrices& prices) const;
  TokenTree Best(const Union& united, const DraftBudget& budget) const;

  const Clock& clock_;
  std::vector<Member> members_;
  std::map<SequenceId, Union> last_;
  Decisions step_{.watch = Stopwatch(clock_)};
  Asking ahead_;  // what the source that grows ahead was asked, by BeginTrees
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_MERGED_DRAFTER_H_
