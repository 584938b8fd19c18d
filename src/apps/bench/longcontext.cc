#include "apps/bench/longcontext.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "apps/common/run_report.h"
#include "base/clock.h"
#include "setup/engine_settings.h"
#include "setup/progress.h"
#include "spec/specpv/gate.h"

namespace talon {
namespace {

constexpr const char* kPartialSuffix = "+specpv-";

Result<Variant> ParseVariant(const std::string& mode) {
  Variant variant{.mode = mode};
  const size_t suffix = mode.find("+specpv");
  if (suffix != std::string::npos) {
    const std::string rest = mode.substr(suffix);
    if (rest != "+specpv-exact" && rest != "+specpv-fast") {
      return InvalidArgument("modes: '{}', must end in +specpv-exact or +specpv-fast", mode);
    }
    TALON_ASSIGN_OR_RETURN(variant.partial,
                           ParseSpecPvMode(rest.substr(std::string(kPartialSuffix).size())));
  }
  const std::string drafter = mode.substr(0, suffix);
  TALON_ASSIGN_OR_RETURN(variant.drafter,
                         DrafterList::Parse(drafter == "plain" ? "NONE" : drafter));
  return variant;
}

// Runs an engine's steps one by one and tells full and partial ones apart by its counters.
class StepWatcher {
 public:
  StepWatcher(Engine* engine, int prompt_tokens) : engine_(engine), prompt_tokens_(prompt_tokens) {}

  void RunStep(Sample* sample) {
    const Metrics& metrics = engine_->metrics();
    const int64_t passes = metrics.Total(Counter::kSpecVerifyPasses);
    const int64_t partial = metrics.Get(Counter::kSpecVerifyPasses, "partial");
    const int64_t staged = metrics.Total(Counter::kNworStagedTokens);
    const int64_t committed = metrics.Get(Counter::kNworTokensCommitted, "blocks");
    const Stopwatch watch;
    engine_->RunStep();
    const double seconds = watch.Seconds();
    if (metrics.Total(Counter::kSpecVerifyPasses) == passes) return;  // prompt only
    if (metrics.Get(Counter::kSpecVerifyPasses, "partial") == partial) {
      sample->full.seconds.push_back(seconds);
      sample->full.prefix_tokens += prompt_tokens_ - 1 + committed;
    } else {
      sample->partial.seconds.push_back(seconds);
      sample->partial.rows += metrics.Total(Counter::kNworStagedTokens) - staged;
    }
  }

  // Percent of the prompt that is in the cache.
  double PromptDone() const {
    const auto bytes =
        static_cast<double>(engine_->metrics().Get(Counter::kKvBytesWritten, "prefill"));
    const auto all = static_cast<double>(engine_->kv().shape().BytesPerToken()) * prompt_tokens_;
    return std::min(100.0, 100 * bytes / all);
  }

 private:
  Engine* engine_;
  int prompt_tokens_;
};

void ReadMetrics(const Metrics& metrics, Sample* sample) {
  for (const RefreshReason reason :
       {RefreshReason::kInit, RefreshReason::kCapacity, RefreshReason::kInterval,
        RefreshReason::kFinish, RefreshReason::kDrift, RefreshReason::kRequest}) {
    const char* name = RefreshReasonName(reason);
    const int64_t count = metrics.Get(Counter::kSpecPvRefresh, name);
    if (count > 0) sample->refreshes[name] = count;
  }
  sample->confirmed = metrics.Total(Counter::kSpecPvConfirmedTokens);
  sample->rolled_back = metrics.Total(Counter::kSpecPvRolledBackTokens);
  sample->fallbacks = metrics.Total(Counter::kSpecPvFallback);
  for (int i = 0; i < AgreementByDistance::kBuckets; ++i) {
    const std::string distance = std::to_string(AgreementByDistance::FirstDistance(i));
    sample->checked[i] = metrics.Get(Counter::kSpecPvCheckedTokens, distance);
    sample->disagreed[i] = metrics.Get(Counter::kSpecPvArgmaxDisagreements, distance);
  }
}

// What the watcher could not see of single steps follows from the request's sums.
void SplitSums(const RequestStats& stats, Sample* sample) {
  sample->full.rows = stats.rows - sample->partial.rows;
  if (sample->partial.steps() == 0) sample->full.prefix_tokens = stats.prefix_tokens_read;
  sample->partial.prefix_tokens = stats.prefix_tokens_read - sample->full.prefix_tokens;
}

}  // namespace

std::string Variant::Label() const {
  if (!partial) return mode;
  return fmt::format("{} {} {}", mode.substr(0, mode.find(kPartialSuffix)),
                     SpecPvModeName(*partial), budget);
}

Result<std::vector<Variant>> ParseVariants(const std::vector<std::string>& modes,
                                           const std::vector<int>& budgets, int block_size) {
  std::vector<Variant> variants;
  for (const std::string& mode : modes) {
    TALON_ASSIGN_OR_RETURN(Variant variant, ParseVariant(mode));
    if (!variant.partial) {
      variants.push_back(variant);
      continue;
    }
    if (budgets.empty()) return InvalidArgument("budgets: none, '{}' needs some", mode);
    for (const int budget : budgets) {
      if (budget <= 0 || budget % block_size != 0) {
        return InvalidArgument("budgets: {}, must be a multiple of the block size {}", budget,
                               block_size);
      }
      variant.budget = budget;
      variants.push_back(variant);
    }
  }
  if (variants.empty() || !variants[0].drafter.none() || variants[0].partial) {
    return InvalidArgument("modes: the first must be plain, the others are compared with it");
  }
  return variants;
}

int FullTwinOf(const std::vector<Variant>& variants, const Variant& variant) {
  const auto at = std::find_if(variants.begin(), variants.end(), [&](const Variant& other) {
    return !other.partial && other.drafter == variant.drafter;
  });
  return at == variants.end() ? -1 : static_cast<int>(at - variants.begin());
}

SpecPvConfig SpecPvOf(SpecPvConfig settings, const Variant& variant) {
  settings.enabled = variant.partial.has_value();
  if (!settings.enabled) return settings;
  settings.mode = *variant.partial;
  settings.retrieval_blocks = variant.budget / settings.block_size;
  return settings;
}

double StepGroup::TotalSeconds() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

void StepGroup::Add(const StepGroup& more) {
  seconds.insert(seconds.end(), more.seconds.begin(), more.seconds.end());
  rows += more.rows;
  prefix_tokens += more.prefix_tokens;
}

double Sample::TokensPerSecond() const {
  return stats.decode_seconds > 0 ? static_cast<double>(stats.emitted) / stats.decode_seconds : 0;
}

void Sample::Add(const Sample& more) {
  AddStats(more.stats, &stats);
  partial.Add(more.partial);
  full.Add(more.full);
  for (const auto& [reason, count] : more.refreshes) refreshes[reason] += count;
  confirmed += more.confirmed;
  rolled_back += more.rolled_back;
  fallbacks += more.fallbacks;
  for (size_t i = 0; i < checked.size(); ++i) {
    checked[i] += more.checked[i];
    disagreed[i] += more.disagreed[i];
  }
  kv_bytes = std::max(kv_bytes, more.kv_bytes);
}

Result<std::unique_ptr<Engine>> MakeVariantEngine(LoadedModel* model, const Config& config,
                                                  const Variant& variant, int prompt_tokens) {
  TALON_ASSIGN_OR_RETURN(const SpecPvConfig settings, MakeSpecPvConfig(config));
  EngineOptions& options = model->engine_options;
  options.step.specpv = SpecPvOf(settings, variant);
  options.max_length = std::min(prompt_tokens + config.sampling.max_tokens + options.block_size,
                                model->target->config().max_context);
  options.kv_tokens = KvTokensFor(*model, options.max_length);
  return MakeEngine(model, config, variant.drafter);
}

Result<Sample> RunSample(LoadedModel* model, const Config& config, const Variant& variant,
                         const std::vector<int32_t>& prompt, const std::string& what) {
  const auto length = static_cast<int>(prompt.size());
  TALON_ASSIGN_OR_RETURN(const auto engine, MakeVariantEngine(model, config, variant, length));
  GenerateRequest request{.prompt = prompt};
  TALON_ASSIGN_OR_RETURN(request.sampling,
                         MakeSamplingParams(config.sampling, model->tokenizer.get()));
  TALON_ASSIGN_OR_RETURN(const RequestId id, engine->Submit(std::move(request)));
  Sample sample{.kv_bytes = engine->kv().bytes(),
                .kv_bytes_per_token = engine->kv().shape().BytesPerToken(),
                .key_summaries = engine->kv().shape().key_summaries};
  StepWatcher watcher(engine.get(), length);
  const StatusLine progress;
  while (engine->HasWork()) {
    progress.Show(fmt::format("{}, prompt {:.0f}%, {} steps", what, watcher.PromptDone(),
                              sample.full.steps() + sample.partial.steps()));
    watcher.RunStep(&sample);
  }
  TALON_ASSIGN_OR_RETURN(GenerateResult result, engine->Take(id));
  if (result.finish == FinishReason::kError) return result.error;
  sample.tokens = result.TokenIds();
  sample.text = std::move(result.text);
  sample.stats = result.stats;
  SplitSums(result.stats, &sample);
  ReadMetrics(engine->metrics(), &sample);
  return sample;
}

}  // namespace talon
