#include "spec/drafters/registry.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

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

constexpr std::array<DrafterInfo, 4> kDrafters = {{
    {"NONE", {nullptr, nullptr}, {.max_nodes = 1, .max_depth = 0, .top_k = 1}},
    {"NGRAM", {"LOOKUP", "PROMPT_LOOKUP"}, {.max_nodes = 12, .max_depth = 17, .top_k = 1}},
    {"STANDALONE", {"DRAFT_MODEL", nullptr}, {.max_nodes = 4, .max_depth = 3, .top_k = 1}},
    {"SUFFIX", {nullptr, nullptr}, {.max_nodes = 24, .max_depth = 23, .top_k = 1}},
}};

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
                                     .max_length = target.max_length,
                                     .max_sequences = target.max_sequences,
                                     .weights = options.weights};
  TALON_ASSIGN_OR_RETURN(auto drafter,
                         StandaloneDrafter::Load(standalone, target.backend, target.metrics));
  return std::unique_ptr<Drafter>(std::move(drafter));
}

}  // namespace

Result<std::string> CanonicalDrafterName(std::string_view name) {
  const std::string upper = Upper(name);
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
  for (const DrafterInfo& info : kDrafters) {
    if (name == info.name) return info.budget;
  }
  return {};
}

Result<std::unique_ptr<Drafter>> MakeDrafter(const std::string& name, const DrafterOptions& options,
                                             const DrafterTarget& target) {
  if (name == "NONE") return std::unique_ptr<Drafter>();
  if (name == "NGRAM") return MakeNgram(options);
  if (name == "SUFFIX") {
    return std::unique_ptr<Drafter>(
        std::make_unique<SuffixDrafter>(SuffixOptions{}, options.suffix_corpus));
  }
  if (name == "STANDALONE") return MakeStandalone(options, target);
  return Internal("drafter: '{}' has no maker", name);
}

}  // namespace talon
