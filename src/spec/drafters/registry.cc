#include "spec/drafters/registry.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "model/heads/draft_kind.h"
#include "spec/drafters/heads/block_drafter.h"
#include "spec/drafters/heads/eagle_drafter.h"
#include "spec/drafters/merged_drafter.h"
#include "spec/drafters/ngram_drafter.h"
#include "spec/drafters/standalone_drafter.h"
#include "spec/drafters/suffix_drafter.h"
#include "spec/grammar_drafter.h"

namespace talon {
namespace {

// Budgets where the user sets none.
constexpr DraftBudget kPlainBudget = {.max_nodes = 1, .max_depth = 0, .top_k = 1};
constexpr DraftBudget kMergedBudget = {.max_nodes = 24, .max_depth = 23, .top_k = 4};

// A target that runs elsewhere has no backend here.
const Clock& ClockOf(const DrafterTarget& target) {
  return target.backend == nullptr ? SteadyClock::Get() : target.backend->time();
}

DraftBudget BudgetOfKind(DrafterKind kind) {
  switch (kind) {
    case DrafterKind::kDflash:
    case DrafterKind::kDspark:
    case DrafterKind::kJetspec:
      return {.max_nodes = 16, .max_depth = 15, .top_k = 4};
    case DrafterKind::kEagle:
    case DrafterKind::kEagle3:
      return {.max_nodes = 8, .max_depth = 5, .top_k = 4};
    case DrafterKind::kGrammar:
      return {.max_nodes = 16, .max_depth = 15, .top_k = 1};
    case DrafterKind::kNgram:
      return {.max_nodes = 12, .max_depth = 17, .top_k = 1};
    case DrafterKind::kRemote:
      return {.max_nodes = 12, .max_depth = 5, .top_k = 4};
    case DrafterKind::kStandalone:
      return {.max_nodes = 4, .max_depth = 3, .top_k = 1};
    case DrafterKind::kSuffix:
      return {.max_nodes = 24, .max_depth = 23, .top_k = 1};
  }
  return {};
}

std::string Upper(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

Result<std::unique_ptr<Drafter>> MakeNgram(const DrafterOptions& options) {
  NgramOptions ngram{.max_trie_depth = options.ngram_max_depth};
  const std::string mode = Upper(options.ngram_mode);
  if (mode != "BFS" && mode != "PROB") {
    return InvalidArgument("ngram_mode: '{}', must be BFS or PROB", options.ngram_mode);
  }
  if (mode == "PROB") ngram.growth = NgramOptions::Growth::kProb;
  TALON_RETURN_IF_ERROR(ngram.Validate());
  return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(ngram, options.ngram_corpus));
}

Result<std::unique_ptr<Drafter>> MakeStandalone(const DrafterOptions& options,
                                                const DrafterTarget& target) {
  const StandaloneOptions standalone{.model_path = options.draft_model_path,
                                     .budget = options.budget,
                                     .min_prob = options.min_prob,
                                     .sample = options.sample,
                                     .vocab_size = target.vocab_size,
                                     .cache = target.cache,
                                     .weights = options.weights};
  TALON_ASSIGN_OR_RETURN(auto drafter,
                         StandaloneDrafter::Load(standalone, target.backend, target.metrics));
  return std::unique_ptr<Drafter>(std::move(drafter));
}

// A head or model that was made for another drafter gets the name of that one.
Status CheckDraftModel(DrafterKind kind, const std::string& dir) {
  if (dir.empty()) {
    return InvalidArgument("drafter: {} needs --speculative-draft-model-path DIR",
                           DrafterKindName(kind));
  }
  TALON_ASSIGN_OR_RETURN(const DraftKind found, DraftKindOf(dir));
  if (DrafterFor(found) == kind) return OkStatus();
  return InvalidArgument("drafter: {}: {} is {}; use --speculative-algorithm {}",
                         DrafterKindName(kind), dir, DraftKindText(found),
                         DrafterKindName(DrafterFor(found)));
}

Result<std::unique_ptr<Drafter>> MakeBlock(const DrafterOptions& options,
                                           const DrafterTarget& target) {
  const BlockOptions block{.model_path = options.draft_model_path,
                           .budget = options.budget,
                           .min_prob = options.min_prob,
                           .capture_layers = options.capture_layers,
                           .window = {.window = options.window, .sink = options.sink},
                           .cache = target.cache,
                           .weights = options.weights};
  TALON_ASSIGN_OR_RETURN(
      auto drafter, BlockDrafter::Load(block, *target.decoder, target.backend, target.metrics));
  return std::unique_ptr<Drafter>(std::move(drafter));
}

Result<std::unique_ptr<Drafter>> MakeEagle(const DrafterOptions& options,
                                           const DrafterTarget& target) {
  const EagleOptions eagle{.model_path = options.draft_model_path,
                           .budget = options.budget,
                           .min_prob = options.min_prob,
                           .capture_layers = options.capture_layers,
                           .token_map = options.token_map,
                           .target_path = target.model_path,
                           .window = {.window = options.window, .sink = options.sink},
                           .cache = target.cache,
                           .weights = options.weights};
  TALON_ASSIGN_OR_RETURN(
      auto drafter, EagleDrafter::Load(eagle, *target.decoder, target.backend, target.metrics));
  return std::unique_ptr<Drafter>(std::move(drafter));
}

Result<std::unique_ptr<Drafter>> MakeOne(DrafterKind kind, const DrafterOptions& options,
                                         const DrafterTarget& target) {
  if (NeedsDraftModel(kind)) {
    TALON_RETURN_IF_ERROR(CheckDraftModel(kind, options.draft_model_path));
  }
  if (!options.token_map.empty() && kind != DrafterKind::kEagle && DraftsWithHead(kind)) {
    return InvalidArgument("speculative_token_map: is for EAGLE, the drafter is {}",
                           DrafterKindName(kind));
  }
  switch (kind) {
    case DrafterKind::kDflash:
    case DrafterKind::kDspark:
    case DrafterKind::kJetspec:
      return MakeBlock(options, target);
    case DrafterKind::kEagle:
    case DrafterKind::kEagle3:
      return MakeEagle(options, target);
    case DrafterKind::kGrammar:
      return std::unique_ptr<Drafter>(std::make_unique<GrammarDrafter>());
    case DrafterKind::kNgram:
      return MakeNgram(options);
    case DrafterKind::kRemote:
      if (options.make_remote) return options.make_remote(target);
      break;
    case DrafterKind::kStandalone:
      return MakeStandalone(options, target);
    case DrafterKind::kSuffix:
      return std::unique_ptr<Drafter>(
          std::make_unique<SuffixDrafter>(SuffixOptions{}, options.suffix_corpus));
  }
  return Internal("drafter: '{}' has no maker", DrafterKindName(kind));
}

// Steps and branches that the user set are those of the model sources; lookups keep their own.
Result<std::unique_ptr<Drafter>> MakeMerged(const DrafterList& drafters,
                                            const DrafterOptions& options,
                                            const DrafterTarget& target) {
  std::vector<MergedDrafter::Source> sources;
  for (const DrafterKind kind : drafters.kinds()) {
    DrafterOptions part = options;
    part.budget = DefaultDraftBudget(kind);
    const bool head = DraftsWithHead(kind);
    if (head && options.steps > 0) part.budget.max_depth = options.steps;
    if (head && options.top_k > 0) part.budget.top_k = options.top_k;
    part.budget.max_nodes = std::max(part.budget.max_nodes, options.budget.max_nodes);
    TALON_ASSIGN_OR_RETURN(auto drafter, MakeOne(kind, part, target));
    sources.push_back({std::move(drafter), part.budget});
  }
  return std::unique_ptr<Drafter>(
      std::make_unique<MergedDrafter>(std::move(sources), ClockOf(target)));
}

}  // namespace

DraftBudget DefaultDraftBudget(const DrafterList& drafters) {
  if (drafters.none()) return kPlainBudget;
  return drafters.merged() ? kMergedBudget : BudgetOfKind(drafters.kinds().front());
}

Result<std::unique_ptr<Drafter>> MakeDrafter(const DrafterList& drafters,
                                             const DrafterOptions& options,
                                             const DrafterTarget& target) {
  if (drafters.none()) return std::unique_ptr<Drafter>();
  if (drafters.merged()) return MakeMerged(drafters, options, target);
  return MakeOne(drafters.kinds().front(), options, target);
}

}  // namespace talon
