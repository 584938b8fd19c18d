// Makes the drafters of a list.
#ifndef TALON_SPEC_DRAFTERS_REGISTRY_H_
#define TALON_SPEC_DRAFTERS_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/draft_cache.h"
#include "spec/drafter.h"
#include "spec/drafter_list.h"

namespace talon {

// What the drafter must fit.
struct DrafterTarget {
  Backend* backend = nullptr;
  const Decoder* decoder = nullptr;
  Metrics* metrics = nullptr;  // fallbacks are counted here
  int vocab_size = 0;
  DraftCacheShape cache;
  std::string model_path;  // the target's directory
};

// Options of all drafters; each reads its own.
struct DrafterOptions {
  std::string draft_model_path;  // heads, STANDALONE
  DraftBudget budget;            // the largest it will be asked for
  int steps = 0;                 // merged model drafters: depth that the user set, 0 = default
  int top_k = 0;                 // the same for branches
  float min_prob = 0;            // tree drafters: drop paths below it
  bool sample = false;           // STANDALONE: draw chains at random, for rejection acceptance
  WeightFormat weights = WeightFormat::kAsStored;  // heads, STANDALONE
  std::string token_map;                           // EAGLE: a file of the tokens it may draft
  std::vector<int> capture_layers;                 // EAGLE3: empty = as the head says
  int window = 0;                                  // heads: draft rows seen, 0 = all
  int sink = 0;                                    // heads: first draft rows seen besides
  std::string ngram_mode = "BFS";
  int ngram_max_depth = 18;
  std::vector<std::vector<int32_t>> ngram_corpus;  // token sequences known from the start
  std::vector<std::vector<int32_t>> suffix_corpus;
  // Makes REMOTE, whose parts are above this module; null: refused.
  std::function<Result<std::unique_ptr<Drafter>>(const DrafterTarget&)> make_remote;
};

// The budget of a method where the user sets none.
DraftBudget DefaultDraftBudget(const DrafterList& drafters);

// Null for plain decoding.
Result<std::unique_ptr<Drafter>> MakeDrafter(const DrafterList& drafters,
                                             const DrafterOptions& options,
                                             const DrafterTarget& target);

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_REGISTRY_H_
