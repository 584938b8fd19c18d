// Drafters by name.
#ifndef TALON_SPEC_DRAFTERS_REGISTRY_H_
#define TALON_SPEC_DRAFTERS_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/draft_cache.h"
#include "spec/drafter.h"

namespace talon {

// What the drafter must fit.
struct DrafterTarget {
  Backend* backend = nullptr;
  const Decoder* decoder = nullptr;
  Metrics* metrics = nullptr;  // fallbacks are counted here
  int vocab_size = 0;
  DraftCacheShape cache;
};

// What a drafter may be told. The fields of other drafters are ignored.
struct DrafterOptions {
  std::string draft_model_path;  // EAGLE3, STANDALONE
  DraftBudget budget;            // the largest it will be asked for
  int steps = 0;                 // set by the user, 0 = default: of the parts of a list
  int top_k = 0;                 // the same
  float min_prob = 0;            // tree drafters: drop paths below it
  bool sample = false;           // STANDALONE: draw chains at random, for rejection acceptance
  WeightFormat weights = WeightFormat::kAsStored;  // EAGLE3, STANDALONE
  std::vector<int> capture_layers;                 // EAGLE3: empty = as the head says
  int window = 0;                                  // EAGLE3: draft rows seen, 0 = all
  int sink = 0;                                    // EAGLE3: first draft rows seen besides
  std::string ngram_mode = "BFS";
  int ngram_max_depth = 18;
  std::vector<std::vector<int32_t>> suffix_corpus;  // token sequences known from the start
  // REMOTE, whose parts are not known here.
  std::function<Result<std::unique_ptr<Drafter>>(const DrafterTarget&)> make_remote;
};

// The registry's name for a name or alias in any case ("lookup" -> "NGRAM"). A list of names
// ("eagle3,lookup", "eagle3+lookup") is MERGED of these; MERGED alone is the list "EAGLE3,SUFFIX".
// Unknown and refused names are errors that list the known ones.
Result<std::string> CanonicalDrafterName(std::string_view name);

// All canonical names.
std::vector<std::string> DrafterNames();

// The budget a method has when the user sets none. REQUIRES: a canonical name.
DraftBudget DefaultDraftBudget(const std::string& name);

// Null for NONE. REQUIRES: a canonical name.
Result<std::unique_ptr<Drafter>> MakeDrafter(const std::string& name, const DrafterOptions& options,
                                             const DrafterTarget& target);

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_REGISTRY_H_
