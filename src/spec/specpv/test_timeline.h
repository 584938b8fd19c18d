// A sequence that is decoded on a simulated machine, for tests of what is decided: plain steps,
// drafts over the whole prefix, rounds of partial passes. No model is run: a text says how likely
// drafts and provisional tokens are right.
#ifndef TALON_SPEC_SPECPV_TEST_TIMELINE_H_
#define TALON_SPEC_SPECPV_TEST_TIMELINE_H_

#include <algorithm>
#include <random>
#include <vector>

#include "spec/policy/adaptive.h"
#include "spec/specpv/payoff.h"

namespace talon {

// A stretch of text.
struct Stretch {
  int tokens = 0;
  double odds = 0.01;       // a full pass judges a provisional token differently
  double acceptance = 0.3;  // probability that a draft is right, given its parent
};

// As models/tiny on one CPU thread.
inline VerifyCurve TinyCurve() {
  return VerifyCurve({{1, 1.00e-3, 3.7e-7},
                      {2, 1.03e-3, 5.0e-7},
                      {4, 1.15e-3, 6.2e-7},
                      {8, 1.47e-3, 6.9e-7},
                      {16, 1.92e-3, 1.04e-6},
                      {32, 3.0e-3, 2.1e-6},
                      {64, 5.4e-3, 4.6e-6},
                      {128, 1.06e-2, 1.0e-5}});
}

class Timeline {
 public:
  struct Options {
    int context = 16000;
    int view = 2048;
    double view_key = 1.2;      // a key of a partial view costs so much more than the curve says
    double draft_level = 4e-4;  // seconds
    bool drafts = true;
    bool partial = true;
    std::vector<Stretch> text;
    unsigned seed = 1;
  };
  struct Outcome {
    double seconds = 0;
    double plain_seconds = 0;  // plain decoding takes so long
    int rounds = 0;
    int tokens = 0;
    int first_partial = -1;  // tokens before the first partial pass
  };

  explicit Timeline(Options options) : options_(std::move(options)) {}

  Outcome Run() {
    WriteText();
    const auto total = static_cast<int>(text_.size());
    while (outcome_.tokens < total) Step(total - outcome_.tokens);
    for (int i = 0; i < outcome_.tokens; ++i) {
      outcome_.plain_seconds += curve_.Seconds({.context = options_.context + i}, 1);
    }
    return outcome_;
  }

 private:
  static constexpr int kMostDrafts = 8;
  static constexpr int kBuffer = 96;  // provisional tokens at most

  // A token of the text, whatever it is that proposes it.
  struct Token {
    float score = 0;  // the drafter's
    bool drafted = false;
    bool disagrees = false;
  };
  // Some tokens are easy: drafts of them are nearly sure to be right, and their scores say so.
  void WriteText() {
    std::mt19937 random(options_.seed);
    const auto happens = [&](double odds) { return std::bernoulli_distribution(odds)(random); };
    for (const Stretch& stretch : options_.text) {
      for (int i = 0; i < stretch.tokens; ++i) {
        const double mean = stretch.acceptance;
        const double score =
            happens(mean) ? std::min(0.95, mean + 0.4) : std::max(0.05, mean - 0.3);
        const bool drafted = happens(score);
        text_.push_back({static_cast<float>(score), drafted, happens(stretch.odds)});
      }
    }
  }
  const Token& At(int position) const {
    return text_[std::min<size_t>(position, text_.size() - 1)];
  }
  int Position() const { return outcome_.tokens + tail_; }
  int Context() const { return options_.context + outcome_.tokens; }
  PassSeconds Passes() const {
    const auto pass = [this](int context, double factor) {
      return [=, this](double rows) { return factor * curve_.Seconds({.context = context}, rows); };
    };
    return {.full = pass(Context(), 1),
            .partial = pass(options_.view, ratios_.partial()),
            .settling = pass(Context(), ratios_.settling())};
  }

  // A round ends and another begins, or a full step.
  void Reconsider(int room) {
    if (round_.tokens > 0) {
      if (round_.partial) {
        payoff_.RecordRound(round_.seconds, round_.tokens);
      } else {
        payoff_.RecordFullStep(round_.tokens);
      }
    }
    round_ = {};
    const double lost = policy_.StepsLost({.context = Context()});
    trunk_ = options_.partial
                 ? payoff_.Decide(Passes(), odds_.Odds(0.03), lost, std::min(kBuffer, room))
                 : 0;
    if (trunk_ == 0) selected_ = false;
  }

  TokenTree Draft(const DraftBudget& budget) const {
    TokenTree tree(0);
    double reach = 1;
    while (tree.size() < std::min(budget.max_nodes, kMostDrafts) && reach > 0.1) {
      const float score = At(Position() + tree.size() - 1).score;
      tree.Add(tree.size() - 1, tree.size(), score);
      reach *= score;
    }
    return tree;
  }

  void Step(int left) {
    if (tail_ == 0) Reconsider(left - 1);
    const bool partial = trunk_ > 0 && selected_ && tail_ < trunk_;
    const bool settles = tail_ > 0 && !partial;
    const StepShape shape{.context = partial ? options_.view : Context(), .partial = partial};
    policy_.BeginStep(shape);
    const DraftBudget budget =
        options_.drafts ? policy_.Budget(shape, {.max_nodes = kMostDrafts, .max_depth = 7})
                        : DraftBudget{};
    const bool drafted = budget.max_nodes > 1;
    TokenTree tree = drafted ? Draft(budget) : TokenTree(0);
    const double draft_seconds = options_.draft_level * (tree.size() - 1);
    if (drafted) policy_.Trim(shape, &tree);
    if (settles && drafted)
      policy_.TrimSettling({.context = Context(), .partial = true}, tail_, &tree);
    const int position = Position();
    std::vector<int32_t> path = {0};
    while (static_cast<int>(path.size()) < tree.size() &&
           At(position + static_cast<int>(path.size()) - 1).drafted) {
      path.push_back(static_cast<int32_t>(path.size()));
    }
    const double by_curve = curve_.Seconds(shape, tree.size() + tail_ * (settles ? 1 : 0));
    const double pass =
        partial ? curve_.Seconds({.context = static_cast<int>(options_.view_key * options_.view)},
                                 tree.size())
                : by_curve;
    const double seconds = pass + draft_seconds;
    int emitted = 0;
    const bool extra = trunk_ > 0 && !selected_;
    if (partial) {
      if (outcome_.first_partial < 0) outcome_.first_partial = outcome_.tokens;
      for (size_t i = 0; i < path.size(); ++i)
        disagrees_.push_back(At(Position()).disagrees), ++tail_;
    } else if (settles) {
      const auto first = std::ranges::find(disagrees_, true);
      const auto confirmed = static_cast<int>(first - disagrees_.begin());
      const bool disagreed = confirmed < tail_;
      odds_.RecordTrunk(confirmed, disagreed);
      payoff_.RecordTrunk(confirmed, disagreed);
      emitted = disagreed ? confirmed + 1 : tail_ + static_cast<int>(path.size());
      tail_ = 0;
      disagrees_.clear();
      ++outcome_.rounds;
    } else {
      emitted = static_cast<int>(path.size());
    }
    outcome_.seconds += seconds;
    outcome_.tokens += emitted;
    if (drafted)
      payoff_.RecordDraftStep(tree.size(), static_cast<double>(path.size()), draft_seconds);
    const bool ordinary = !settles && !extra;
    ratios_.Record(partial   ? PassKind::kPartial
                   : settles ? PassKind::kSettling
                             : PassKind::kFull,
                   pass / by_curve);
    round_.seconds += seconds;
    round_.tokens += emitted;
    round_.partial |= partial;
    if (tree.size() > 1 && !settles) policy_.ObserveTree(tree, path, false);
    if (ordinary) {
      policy_.ObserveStep(shape, {.rows = tree.size(),
                                  .emitted = static_cast<int>(path.size()),
                                  .drafted = drafted,
                                  .draft_seconds = draft_seconds,
                                  .total_seconds = seconds});
    } else if (extra) {
      policy_.Charge(shape, seconds, static_cast<double>(path.size()));
    }
    if (!partial) selected_ = trunk_ > 0;
  }

  struct RoundSum {
    double seconds = 0;
    int tokens = 0;
    bool partial = false;
  };
  Options options_;
  std::vector<Token> text_;
  VerifyCurve curve_ = TinyCurve();
  AdaptivePolicy policy_{TinyCurve()};
  PartialPayoff payoff_;
  PassRatios ratios_;
  DisagreementOdds odds_;
  int trunk_ = 0;
  bool selected_ = false;
  int tail_ = 0;
  std::vector<bool> disagrees_;  // the tail's tokens
  RoundSum round_;
  Outcome outcome_;
};

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_TEST_TIMELINE_H_
