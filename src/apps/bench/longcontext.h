// What `talon bench longcontext` is made of: the ways of decoding that it compares, and what one
// prompt decoded in one way has shown.
#ifndef TALON_APPS_BENCH_LONGCONTEXT_H_
#define TALON_APPS_BENCH_LONGCONTEXT_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "setup/config.h"
#include "setup/loader.h"
#include "spec/specpv/config.h"
#include "spec/specpv/governor.h"

namespace talon {

// A way of decoding: plain, a drafter over the whole prefix, or either with partial verification
// under one budget.
struct Variant {
  std::string mode;                   // as the user wrote it
  DrafterList drafter;                // none: plain
  std::optional<SpecPvMode> partial;  // none: every pass reads the whole prefix
  int budget = 0;                     // retrieved tokens

  bool exact() const { return partial != SpecPvMode::kFast; }
  std::string Label() const;  // "eagle3 exact 2048"
};

// "plain" first, then drafters, each also with "+specpv-exact" or "+specpv-fast": these stand for
// one variant per budget, which must be a multiple of the block size.
Result<std::vector<Variant>> ParseVariants(const std::vector<std::string>& modes,
                                           const std::vector<int>& budgets, int block_size);

// The variant with the same drafter that reads the whole prefix, -1 if there is none.
int FullTwinOf(const std::vector<Variant>& variants, const Variant& variant);

// The settings of partial verification with the variant's mode and budget.
SpecPvConfig SpecPvOf(SpecPvConfig settings, const Variant& variant);

// Steps of one kind.
struct StepGroup {
  std::vector<double> seconds;  // time of each step, drafting included
  int64_t rows = 0;
  int64_t prefix_tokens = 0;  // prefix tokens with K/V that they have read

  int64_t steps() const { return static_cast<int64_t>(seconds.size()); }
  double TotalSeconds() const;
  void Add(const StepGroup& more);
};

// One prompt decoded in one way, or several added up.
struct Sample {
  std::vector<int32_t> tokens;
  std::string text;
  RequestStats stats;
  StepGroup partial, full;
  std::map<std::string, int64_t> refreshes;  // by reason
  int64_t confirmed = 0;
  int64_t rolled_back = 0;
  int64_t fallbacks = 0;
  // By distance from the last full pass, as AgreementByDistance has it.
  std::array<int64_t, AgreementByDistance::kBuckets> checked = {};
  std::array<int64_t, AgreementByDistance::kBuckets> disagreed = {};
  size_t kv_bytes = 0;            // blocks, summaries, staging and tails
  size_t kv_bytes_per_token = 0;  // K and V of all layers
  bool key_summaries = false;     // blocks are chosen by them

  double TokensPerSecond() const;
  // Everything but tokens and text, which stay the first one's.
  void Add(const Sample& more);
};

// An engine for the variant, of the size that a prompt needs.
Result<std::unique_ptr<Engine>> MakeVariantEngine(LoadedModel* model, const Config& config,
                                                  const Variant& variant, int prompt_tokens);

// Decodes with an engine of its own, so nothing is learnt from other runs. Shows progress on a
// terminal, after `what`.
Result<Sample> RunSample(LoadedModel* model, const Config& config, const Variant& variant,
                         const std::vector<int32_t>& prompt, const std::string& what);

}  // namespace talon

#endif  // TALON_APPS_BENCH_LONGCONTEXT_H_
