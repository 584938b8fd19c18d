#include "spec/drafters/registry.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "spec/drafters/eagle3_drafter.h"
#include "spec/drafters/merged_drafter.h"
#include "spec/drafters/ngram_drafter.h"
#include "spec/drafters/standalone_drafter.h"
#include "spec/drafters/suffix_drafter.h"

namespace talon {
namespace {

struct DrafterInfo {
  const char* name;
  std::array<const char*, 2> aliases;  // nullptr: none
  DraftBudget budget;
};

constexpr std::array<DrafterInfo, 7> kDrafters = {{
    {"EAGLE3", {nullptr, nullptr}, {.max_nodes = 8, .max_depth = 5, .top_k = 4}},
    {"MERGED", {nullptr, nullptr}, {.max_nodes = 24, .max_depth = 23, .top_k = 4}},
    {"NONE", {nullptr, nullptr}, {.max_nodes = 1, .max_depth = 0, .top_k = 1}},
    {"NGRAM", {"LOOKUP", "PROMPT_LOOKUP"}, {.max_nodes = 12, .max_depth = 17, .top_k = 1}},
    {"REMOTE", {nullptr, nullptr}, {.max_nodes = 12, .max_depth = 5, .top_k = 4}},
    {"STANDALONE", {"DRAFT_MODEL", nullptr}, {.max_nodes = 4, .max_depth = 3, .top_k = 1}},
    {"SUFFIX", {nullptr, nullptr}, {.max_nodes = 24, .max_depth = 23, .top_k = 1}},
}};

constexpr const char* kDefaultSources = "EAGLE3,SUFFIX";

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
  return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(ngram));
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

Result<std::unique_ptr<Drafter>> MakeEagle3(const DrafterOptions& options,
                                            const DrafterTarget& target) {
  const Eagle3Options eagle{.model_path = options.draft_model_path,
                            .budget = options.budget,
                            .min_prob = options.min_prob,
                            .capture_layers = options.capture_layers,
                            .window = options.window,
                            .sink = options.sink,
                            .cache = target.cache,
                            .weights = options.weights};
  TALON_ASSIGN_OR_RETURN(
      auto drafter, Eagle3Drafter::Load(eagle, *target.decoder, target.backend, target.metrics));
  return std::unique_ptr<Drafter>(std::move(drafter));
}

std::vector<std::string> SplitNames(std::string_view names) {
  std::vector<std::string> parts;
  for (size_t start = 0; start <= names.size();) {
    const size_t comma = std::min(names.find_first_of(",+", start), names.size());
    parts.emplace_back(names.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

Result<std::string> CanonicalList(std::string_view names) {
  std::string list;
  std::vector<std::string> seen;
  for (const std::string& part : SplitNames(names)) {
    TALON_ASSIGN_OR_RETURN(const std::string name, CanonicalDrafterName(part));
    if (name == "NONE" || name == kDefaultSources) {
      return InvalidArgument("drafter: '{}' cannot be part of a list", part);
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      return InvalidArgument("drafter: '{}' twice in '{}'", name, names);
    }
    seen.push_back(name);
    list += (list.empty() ? "" : ",") + name;
  }
  if (seen.size() > MergedDrafter::kMaxSources) {
    return InvalidArgument("drafter: {} sources in '{}', at most {}", seen.size(), names,
                           MergedDrafter::kMaxSources);
  }
  return list;
}

// Steps and branches the user set are those of the model sources; lookups keep their own.
Result<std::unique_ptr<Drafter>> MakeMerged(const std::string& names, const DrafterOptions& options,
                                            const DrafterTarget& target) {
  std::vector<MergedDrafter::Source> sources;
  for (const std::string& name : SplitNames(names)) {
    DrafterOptions part = options;
    part.budget = DefaultDraftBudget(name);
    if (name == "EAGLE3" && options.steps > 0) part.budget.max_depth = options.steps;
    if (name == "EAGLE3" && options.top_k > 0) part.budget.top_k = options.top_k;
    part.budget.max_nodes = std::max(part.budget.max_nodes, options.budget.max_nodes);
    TALON_ASSIGN_OR_RETURN(auto drafter, MakeDrafter(name, part, target));
    sources.push_back({std::move(drafter), part.budget});
  }
  return std::unique_ptr<Drafter>(std::make_unique<MergedDrafter>(std::move(sources)));
}

}  // namespace

Result<std::string> CanonicalDrafterName(std::string_view name) {
  if (name.find_first_of(",+") != std::string_view::npos) return CanonicalList(name);
  const std::string upper = Upper(name);
  if (upper == "MERGED") return std::string(kDefaultSources);
  std::string known;
  for (const DrafterInfo& info : kDrafters) {
    if (upper == info.name) return std::string(info.name);
    for (const char* alias : info.aliases) {
      if (alias != nullptr && upper == alias) return std::string(info.name);
    }
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  if (upper == "EAGLE" || upper == "NEXTN") {
    return InvalidArgument("drafter: '{}': EAGLE-1/2 heads are unsupported; known: {}", name,
                           known);
  }
  return InvalidArgument("drafter: '{}' is unknown; known: {}", name, known);
}

std::vector<std::string> DrafterNames() {
  std::vector<std::string> names;
  for (const DrafterInfo& info : kDrafters) names.emplace_back(info.name);
  return names;
}

DraftBudget DefaultDraftBudget(const std::string& name) {
  if (name.find(',') != std::string::npos) return DefaultDraftBudget("MERGED");
  for (const DrafterInfo& info : kDrafters) {
    if (name == info.name) return info.budget;
  }
  return {};
}

Result<std::unique_ptr<Drafter>> MakeDrafter(const std::string& name, const DrafterOptions& options,
                                             const DrafterTarget& target) {
  if (name == "NONE") return std::unique_ptr<Drafter>();
  if (name.find(',') != std::string::npos) return MakeMerged(name, options, target);
  if (name == "EAGLE3") return MakeEagle3(options, target);
  if (name == "NGRAM") return MakeNgram(options);
  if (name == "SUFFIX") {
    return std::unique_ptr<Drafter>(
        std::make_unique<SuffixDrafter>(SuffixOptions{}, options.suffix_corpus));
  }
  if (name == "STANDALONE") return MakeStandalone(options, target);
  if (name == "REMOTE" && options.make_remote) return options.make_remote(target);
  return Internal("drafter: '{}' has no maker", name);
}

}  // namespace talon
