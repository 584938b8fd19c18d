#include "setup/engine_settings.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "model/heads/draft_kind.h"
#include "setup/draft_choice.h"
#include "setup/remote_options.h"
#include "setup/settings.h"

namespace talon {
namespace {

// REQUIRES: checked settings. A threshold below 1 implies threshold acceptance.
AcceptMode AcceptModeOf(const std::string& name, const AcceptThresholds& thresholds) {
  if (name == "rejection") return AcceptMode::kRejection;
  return name == "threshold" || thresholds.lossy() ? AcceptMode::kThreshold : AcceptMode::kMatch;
}

// Says what was made of a draft model whose drafter the user has not named.
Status ExplainDraftModel(const SpeculativeConfig& speculative, const DrafterList& drafters) {
  const std::string& dir = speculative.draft_model_path;
  const bool chosen = IsAutoMethod(speculative.method) && !dir.empty();
  if (!chosen || drafters.none() || drafters.Has(DrafterKind::kRemote)) return OkStatus();
  TALON_ASSIGN_OR_RETURN(const DraftKind kind, DraftKindOf(dir));
  LogWarning("{} is {}: drafting with --speculative-algorithm {}", dir, DraftKindText(kind),
             drafters.Name());
  return OkStatus();
}

// There is one setting for the draft model's directory.
Status CheckDraftModels(const DrafterList& drafters) {
  std::vector<std::string> models;
  for (const DrafterKind kind : drafters.kinds()) {
    if (NeedsDraftModel(kind)) models.emplace_back(DrafterKindName(kind));
  }
  if (models.size() <= 1) return OkStatus();
  return InvalidArgument(
      "speculative_algorithm: {}: {} each need a draft model, and there is one "
      "draft_model_path; leave all of them but one out",
      drafters.Name(), fmt::join(models, " and "));
}

// The largest nodes and depth that any drafter may be asked for.
DraftBudget LargestDraftBudget(const Config& config) {
  DraftBudget largest;
  for (const std::string& name : DrafterList::KnownNames()) {
    const DraftBudget budget = DraftBudgetOf(config, DrafterList::Parse(name).value());
    largest.max_nodes = std::max(largest.max_nodes, budget.max_nodes);
    largest.max_depth = std::max(largest.max_depth, budget.max_depth);
  }
  return largest;
}

Result<StepOptions> MakeStepOptions(const Config& config) {
  const SpeculativeConfig& speculative = config.speculative;
  StepOptions step;
  step.thresholds = {speculative.accept_threshold_single, speculative.accept_threshold_acc};
  step.accept = AcceptModeOf(speculative.acceptance, step.thresholds);
  if (step.accept == AcceptMode::kThreshold && step.thresholds.lossy()) {
    LogWarning("speculation is lossy: accept_threshold_single {}, accept_threshold_acc {}",
               speculative.accept_threshold_single, speculative.accept_threshold_acc);
  }
  step.budget = LargestDraftBudget(config);
  step.nwor = speculative.enable_nwor;
  step.scv_chunk_size = speculative.scv_chunk_size;
  TALON_ASSIGN_OR_RETURN(step.specpv, MakeSpecPvConfig(config));
  return step;
}

Result<EngineOptions> MakeEngineOptions(const Config& config) {
  if (config.kv_offload && config.device == "cpu") {
    return InvalidArgument("kv_offload: moves K and V out of a GPU's memory, the device is cpu");
  }
  if (!config.enable_nan_detection) {
    return InvalidArgument("enable_nan_detection: false, but logits are always checked");
  }
  EngineOptions options;
  ParseKvType(config.kv_dtype, &options.kv_dtype);
  options.block_size = config.block_size;
  options.kv_tokens = config.kv_tokens;
  options.max_length = config.max_length;
  options.max_sequences = config.max_sequences;
  const int usual_chunk = config.device == "cpu" ? 512 : 2048;
  options.prefill_chunk = config.prefill_chunk > 0 ? config.prefill_chunk : usual_chunk;
  options.kv_audit = config.kv_audit;
  options.prefix_cache = config.enable_prefix_cache;
  options.kv_offload = config.kv_offload;
  TALON_ASSIGN_OR_RETURN(options.step, MakeStepOptions(config));
  return options;
}

DrafterOptions MakeDrafterOptions(const SpeculativeConfig& config, AcceptMode accept) {
  DrafterOptions options{.draft_model_path = config.draft_model_path,
                         .steps = config.num_steps,
                         .top_k = config.eagle_topk,
                         .min_prob = config.draft_min_prob,
                         .sample = accept == AcceptMode::kRejection,
                         .token_map = config.token_map,
                         .capture_layers = config.eagle3_capture_layers,
                         .window = std::max(config.draft_window_size, 0),
                         .sink = config.draft_sink_size,
                         .ngram_mode = config.ngram_mode,
                         .ngram_max_depth = config.ngram_max_depth};
  ParseWeightFormat(config.draft_weights, &options.weights);
  return options;
}

}  // namespace

Result<EngineSettings> MakeEngineSettings(const Config& config) {
  TALON_RETURN_IF_ERROR(CheckSettings(config, kModelSettings | kSpeculativeSettings));
  EngineSettings settings;
  ParseWeightFormat(config.weights, &settings.weights);
  ParseActivationFormat(config.activations, &settings.activations);
  if (Speculates(config)) {
    TALON_ASSIGN_OR_RETURN(DraftChoice choice, ChooseDrafters(config));
    TALON_RETURN_IF_ERROR(CheckDraftModels(choice.drafters));
    TALON_RETURN_IF_ERROR(ExplainDraftModel(config.speculative, choice.drafters));
    settings.drafters = std::move(choice.drafters);
    settings.head_found = !choice.head.empty();
  }
  TALON_ASSIGN_OR_RETURN(settings.engine, MakeEngineOptions(config));
  settings.drafter = MakeDrafterOptions(config.speculative, settings.engine.step.accept);
  return settings;
}

DraftBudget DraftBudgetOf(const Config& all, const DrafterList& drafters) {
  const SpeculativeConfig& config = all.speculative;
  const DraftBudget plain = DefaultDraftBudget(drafters);
  if (drafters.none()) return plain;
  DraftBudget budget = drafters == DrafterKind::kRemote ? RemoteDraftBudget(all) : plain;
  if (config.num_steps > 0) budget.max_depth = config.num_steps;
  if (config.eagle_topk > 0) budget.top_k = config.eagle_topk;
  if (config.num_draft_tokens > 0) budget.max_nodes = config.num_draft_tokens;
  if (drafters.merged()) budget.max_depth = std::max(budget.max_depth, plain.max_depth);
  const bool model = !drafters.merged() && NeedsDraftModel(drafters.kinds().front());
  if (model && config.num_steps > 0 && config.num_draft_tokens == 0) {
    budget.max_nodes = budget.top_k == 1 ? config.num_steps + 1 : 4 * config.num_steps;
  }
  if (model && budget.top_k == 1) budget.max_nodes = budget.max_depth + 1;
  return budget;
}

Result<SpecPvConfig> MakeSpecPvConfig(const Config& config) {
  const SpecPvSettings& settings = config.speculative.specpv;
  SpecPvConfig specpv = settings.values;
  TALON_ASSIGN_OR_RETURN(specpv.mode, ParseSpecPvMode(settings.mode));
  TALON_ASSIGN_OR_RETURN(specpv.selector, ParseSpecPvSelector(settings.selector));
  TALON_ASSIGN_OR_RETURN(specpv.reduce, ParseSpecPvReduce(settings.reduce));
  TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(specpv));
  return specpv;
}

}  // namespace talon
