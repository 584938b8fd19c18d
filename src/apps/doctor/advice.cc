#include "apps/doctor/advice.h"

#include <algorithm>
#include <utility>

namespace talon {
namespace {

constexpr int kFewestTrials = 16;     // trials of depth 1 that it takes to say anything
constexpr double kWorthSaying = 1.1;  // speed-up that removing a limit promises
constexpr double kGoodFirst = 0.8;    // acceptance of depth 1 that good heads reach
constexpr double kPoorFirst = 0.65;
constexpr double kUsefulDepth = 0.2;  // reach below which a level hardly pays
constexpr double kAdaptiveGain = 1.03;

// A limit and how much faster decoding could be without it.
struct Limit {
  std::string name;
  double gain = 1;
  std::string sentence;
  std::string next;
};

// Means over the contexts.
struct Mean {
  double tau = 0, nodes = 0, verify_cost = 0, draft_cost = 0, draft_share = 0;
  double predicted = 0, measured = 0, adaptive = 0, adaptive_nodes = 0;
};

Mean MeanOf(const ProbeFigures& figures) {
  Mean mean;
  const auto n = static_cast<double>(figures.contexts.size());
  for (const ContextFigures& one : figures.contexts) {
    mean.tau += one.fixed.tau / n;
    mean.nodes += one.fixed.nodes / n;
    mean.verify_cost += one.fixed.verify_cost / n;
    mean.draft_cost += one.fixed.draft_cost / n;
    mean.draft_share += one.fixed.draft_share / n;
    mean.predicted += one.fixed.predicted / n;
    mean.measured += one.fixed.measured / n;
    mean.adaptive += one.adaptive.measured / n;
    mean.adaptive_nodes += one.adaptive.nodes / n;
  }
  return mean;
}

double AcceptanceAt(const RequestStats& stats, int depth) {
  const auto tried = static_cast<double>(stats.tried_at_depth[depth - 1]);
  return tried > 0 ? static_cast<double>(stats.accepted_at_depth[depth - 1]) / tried : 0;
}

// Share of the trees of which a node at this depth was accepted.
double ReachOf(const RequestStats& stats, int depth) {
  const auto trees = static_cast<double>(stats.tried_at_depth[0]);
  return trees > 0 ? static_cast<double>(stats.accepted_at_depth[depth - 1]) / trees : 0;
}

// Levels that are reached often enough.
int UsefulDepth(const RequestStats& stats, int max_depth) {
  int depth = 1;
  while (depth < std::min(max_depth, RequestStats::kMaxDepth) &&
         ReachOf(stats, depth + 1) >= kUsefulDepth) {
    ++depth;
  }
  return depth;
}

std::string FewerSteps(const DraftBudget& budget) {
  return fmt::format("--speculative-num-steps {}", std::max(1, budget.max_depth / 2));
}

Limit VerificationLimit(const Mean& mean, const DraftSettings& settings) {
  const double now = mean.verify_cost + mean.draft_cost;
  Limit limit{.name = "verification", .gain = now / ((1 + mean.verify_cost) / 2 + mean.draft_cost)};
  limit.sentence = fmt::format(
      "Verification limits: c({:.0f}) = {:.1f}, so checking a tree of {:.0f} nodes costs {:.1f} "
      "plain steps, for a tau of {:.1f}. A cheaper verify pass or fewer nodes would help.",
      mean.nodes, mean.verify_cost, mean.nodes, mean.verify_cost, mean.tau);
  if (mean.adaptive > kAdaptiveGain * mean.measured) {
    limit.next = fmt::format(
        "--speculative-adaptive true (the default): with {:.1f} nodes a pass it reaches {:.2f}x.",
        mean.adaptive_nodes, mean.adaptive);
  } else if (settings.budget.top_k == 1) {
    limit.next = FewerSteps(settings.budget);
  } else {
    limit.next = fmt::format("--speculative-num-draft-tokens {}",
                             std::max(2, settings.budget.max_nodes / 2));
  }
  return limit;
}

Limit DraftingLimit(const Mean& mean, const DraftSettings& settings) {
  const double now = mean.verify_cost + mean.draft_cost;
  Limit limit{.name = "drafting", .gain = now / (mean.verify_cost + mean.draft_cost / 2)};
  const bool light = settings.draft_weights == "int8" || settings.draft_weights == "int4";
  const bool head = settings.kind != "STANDALONE";
  limit.sentence =
      fmt::format("Drafting limits: it takes {:.0f}% of the time. {}{} or fewer steps would help.",
                  100 * mean.draft_share, light ? "" : "Lighter draft weights, ",
                  head ? "a smaller draft vocabulary" : "a smaller draft model");
  limit.next = light ? FewerSteps(settings.budget) : "--speculative-draft-weights int8";
  return limit;
}

Limit AcceptanceLimit(const ProbeFigures& figures, const DraftSettings& settings) {
  const RequestStats& stats = figures.fixed_stats;
  const double first = AcceptanceAt(stats, 1);
  const bool head = settings.kind != "STANDALONE";
  Limit limit{.name = "acceptance",
              .gain = first < kPoorFirst ? kGoodFirst / std::max(first, 0.2) : 1};
  limit.sentence = fmt::format(
      "Acceptance limits: depth 1 is accepted {:.0f}% of the time; {}.{}", 100 * first,
      head ? "train the head on text like this (tools/train)"
           : "a draft model nearer to the target would help",
      figures.random_text ? " The text began with random tokens, real text may do better." : "");
  const int useful = UsefulDepth(stats, settings.budget.max_depth);
  limit.next = useful < settings.budget.max_depth
                   ? fmt::format("--speculative-num-steps {}, until the draft is better", useful)
               : head ? "tools/train, on the target's own text"
                      : "another draft model, or an EAGLE-3 head (tools/train)";
  return limit;
}

Limit VocabularyLimit(const ProbeFigures& figures, const DraftSettings& settings,
                      const Mean& mean) {
  const double missing = 1 - figures.coverage;
  return {.name = "vocabulary",
          .gain = 1 + missing * mean.tau / 2,  // a path is cut in the middle
          .sentence = fmt::format(
              "The draft vocabulary limits: {:.0f}% of the tokens are not among the {} that the "
              "draft can name, and each of them ends a path.",
              100 * missing, settings.draft_vocab),
          .next = "a head with a larger draft vocabulary, by frequency in this text (tools/train)"};
}

// tau that falls as the context grows.
Limit ContextLimit(const ProbeFigures& figures, const DraftSettings& settings) {
  const ContextFigures& first = figures.contexts.front();
  const ContextFigures& last = figures.contexts.back();
  const bool head = settings.kind != "STANDALONE";
  Limit limit{.name = "context", .gain = first.fixed.tau / std::max(last.fixed.tau, 1.0)};
  limit.sentence =
      fmt::format("Context limits: tau falls from {:.1f} at {} tokens to {:.1f} at {}: {}.",
                  first.fixed.tau, first.context, last.fixed.tau, last.context,
                  head ? "perhaps the head was trained on shorter texts"
                       : "perhaps the draft model reads long texts worse");
  const int window = std::max(256, std::min(1024, last.context / 2));
  limit.next = head && settings.window == 0
                   ? fmt::format("--speculative-draft-window-size {}", window)
               : head ? "tools/train with long sequences"
                      : "a draft model for long contexts";
  return limit;
}

Limit OverheadLimit(const Mean& mean) {
  return {.name = "overhead",
          .gain = mean.predicted / std::max(mean.measured, 0.01) / kWorthSaying,
          .sentence = fmt::format(
              "Measured is below predicted ({:.2f}x against {:.2f}x): time goes to neither "
              "drafting nor the pass, or the machine is busy.",
              mean.measured, mean.predicted),
          .next = "the same again with --repeats 3 on an idle machine"};
}

// Nothing costs much: what is left to gain is a larger tree, where its last level still does well.
Advice NoLimit(const ProbeFigures& figures, const DraftSettings& settings, const Mean& mean) {
  Advice advice{.limit = "none"};
  advice.limits.push_back(
      fmt::format("No single cost stands out: tau {:.1f}, verification {:.1f} and drafting {:.1f} "
                  "plain steps.",
                  mean.tau, mean.verify_cost, mean.draft_cost));
  const DraftBudget& budget = settings.budget;
  const int depth = std::clamp(budget.max_depth, 1, RequestStats::kMaxDepth);
  const bool deeper = ReachOf(figures.fixed_stats, depth) > 0.4;
  advice.next = deeper ? fmt::format("--speculative-num-steps {}", budget.max_depth + 2)
                       : "nothing: the settings fit";
  return advice;
}

}  // namespace

Advice Advise(const ProbeFigures& figures, const DraftSettings& settings) {
  if (figures.fixed_stats.tried_at_depth[0] < kFewestTrials) {
    return {.limit = "unknown",
            .limits = {fmt::format("Too little was drafted to judge: {} trees.",
                                   figures.fixed_stats.tried_at_depth[0])},
            .next = "longer generations: --max-tokens, --prompts, --ignore-eos"};
  }
  const Mean mean = MeanOf(figures);
  std::vector<Limit> limits = {
      VerificationLimit(mean, settings),  DraftingLimit(mean, settings),
      AcceptanceLimit(figures, settings), VocabularyLimit(figures, settings, mean),
      ContextLimit(figures, settings),    OverheadLimit(mean)};
  std::erase_if(limits, [](const Limit& limit) { return limit.gain < kWorthSaying; });
  if (limits.empty()) return NoLimit(figures, settings, mean);
  std::ranges::stable_sort(limits, [](const Limit& a, const Limit& b) { return a.gain > b.gain; });
  Advice advice{.limit = limits[0].name, .limits = {limits[0].sentence}, .next = limits[0].next};
  if (limits.size() > 1) advice.limits.push_back(limits[1].sentence);
  return advice;
}

}  // namespace talon
