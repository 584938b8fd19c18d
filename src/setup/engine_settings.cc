#include "setup/engine_settings.h"

#include <algorithm>

#include "base/log.h"
#include "setup/remote_options.h"

namespace talon {
namespace {

Status CheckRange(const char* name, int value, int low, int high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument("{}: {}, must be {} to {}", name, value, low, high);
}

Status CheckShare(const char* name, float value) {
  if (value >= 0 && value <= 1) return OkStatus();
  return InvalidArgument("{}: {}, must be 0 to 1", name, value);
}

bool Lists(const std::string& drafters, const char* name) {
  return drafters.find(name) != std::string::npos;
}

// A threshold below 1 asks for threshold acceptance by itself.
Result<AcceptMode> ParseAcceptance(const std::string& name, const AcceptThresholds& thresholds) {
  if (name == "match") return thresholds.lossy() ? AcceptMode::kThreshold : AcceptMode::kMatch;
  if (name == "threshold") return AcceptMode::kThreshold;
  if (name == "rejection") return AcceptMode::kRejection;
  return InvalidArgument("acceptance: '{}', must be match, threshold or rejection", name);
}

Status FillSpeculation(const Config& all, LoadedModel* model) {
  const SpeculativeConfig& config = all.speculative;
  StepOptions& step = model->engine_options.step;
  const bool speculates = config.enable_speculative_decoding && config.enable_target_tree;
  const std::string method = speculates ? config.method : "NONE";
  TALON_ASSIGN_OR_RETURN(model->drafter_name, CanonicalDrafterName(method));
  if (Lists(model->drafter_name, "EAGLE3") && Lists(model->drafter_name, "STANDALONE")) {
    return InvalidArgument(
        "speculative_algorithm: {}: EAGLE3 and STANDALONE each need a draft model, and there is "
        "one draft_model_path; leave one of them out",
        model->drafter_name);
  }
  TALON_RETURN_IF_ERROR(CheckRange("num_steps", config.num_steps, 0, 64));
  TALON_RETURN_IF_ERROR(CheckRange("eagle_topk", config.eagle_topk, 0, 64));
  TALON_RETURN_IF_ERROR(CheckRange("num_draft_tokens", config.num_draft_tokens, 0, 256));
  TALON_RETURN_IF_ERROR(CheckRange("scv_chunk_size", config.scv_chunk_size, 0, 256));
  TALON_RETURN_IF_ERROR(CheckRange("ngram_max_depth", config.ngram_max_depth, 2, 64));
  TALON_RETURN_IF_ERROR(CheckShare("accept_threshold_single", config.accept_threshold_single));
  TALON_RETURN_IF_ERROR(CheckShare("accept_threshold_acc", config.accept_threshold_acc));
  TALON_RETURN_IF_ERROR(CheckShare("draft_min_prob", config.draft_min_prob));
  step.thresholds = {config.accept_threshold_single, config.accept_threshold_acc};
  TALON_ASSIGN_OR_RETURN(step.accept, ParseAcceptance(config.acceptance, step.thresholds));
  if (step.accept == AcceptMode::kThreshold && step.thresholds.lossy()) {
    LogWarning("speculation is lossy: accept_threshold_single {}, accept_threshold_acc {}",
               config.accept_threshold_single, config.accept_threshold_acc);
  }
  // Of all drafters, because a model is loaded once and may serve several.
  for (const std::string& name : DrafterNames()) {
    const DraftBudget budget = DraftBudgetOf(all, name);
    step.budget.max_nodes = std::max(step.budget.max_nodes, budget.max_nodes);
    step.budget.max_depth = std::max(step.budget.max_depth, budget.max_depth);
  }
  step.nwor = config.enable_nwor;
  step.scv_chunk_size = config.scv_chunk_size;
  model->drafter_options.draft_model_path = config.draft_model_path;
  model->drafter_options.min_prob = config.draft_min_prob;
  TALON_RETURN_IF_ERROR(CheckRange("draft_window_size", config.draft_window_size, -1, 1 << 24));
  TALON_RETURN_IF_ERROR(CheckRange("draft_sink_size", config.draft_sink_size, 0, 1 << 24));
  model->drafter_options.window = std::max(config.draft_window_size, 0);
  model->drafter_options.sink = config.draft_sink_size;
  model->drafter_options.capture_layers = config.eagle3_capture_layers;
  if (!ParseWeightFormat(config.draft_weights, &model->drafter_options.weights)) {
    return InvalidArgument("draft_weights: '{}', must be {}", config.draft_weights,
                           WeightFormatNames());
  }
  model->drafter_options.sample = step.accept == AcceptMode::kRejection;
  model->drafter_options.ngram_mode = config.ngram_mode;
  model->drafter_options.ngram_max_depth = config.ngram_max_depth;
  return OkStatus();
}

}  // namespace

DraftBudget DraftBudgetOf(const Config& all, const std::string& drafter) {
  const SpeculativeConfig& config = all.speculative;
  DraftBudget budget = drafter == "REMOTE" ? RemoteDraftBudget(all) : DefaultDraftBudget(drafter);
  if (drafter == "NONE") return budget;
  if (config.num_steps > 0) budget.max_depth = config.num_steps;
  if (config.eagle_topk > 0) budget.top_k = config.eagle_topk;
  if (config.num_draft_tokens > 0) budget.max_nodes = config.num_draft_tokens;
  const bool merged = drafter.find(',') != std::string::npos;
  if (merged) budget.max_depth = std::max(budget.max_depth, DefaultDraftBudget(drafter).max_depth);
  const bool model = drafter == "STANDALONE" || drafter == "EAGLE3";
  if (model && config.num_steps > 0 && config.num_draft_tokens == 0) {
    budget.max_nodes = budget.top_k == 1 ? config.num_steps + 1 : 4 * config.num_steps;
  }
  if (model && budget.top_k == 1) budget.max_nodes = budget.max_depth + 1;
  return budget;
}

Status FillEngineOptions(const Config& config, LoadedModel* model) {
  TALON_RETURN_IF_ERROR(CheckRange("threads", config.threads, 0, 1024));
  TALON_RETURN_IF_ERROR(CheckRange("max_sequences", config.max_sequences, 1, 1024));
  TALON_RETURN_IF_ERROR(CheckRange("prefill_chunk", config.prefill_chunk, 1, 16384));
  TALON_RETURN_IF_ERROR(CheckRange("max_length", config.max_length, 0, 1 << 24));
  TALON_RETURN_IF_ERROR(CheckRange("kv_tokens", config.kv_tokens, 0, 1 << 30));
  const int b = config.block_size;
  if (b != 8 && b != 16 && b != 32 && b != 64) {
    return InvalidArgument("block_size: {}, must be 8, 16, 32 or 64", b);
  }
  EngineOptions& options = model->engine_options;
  if (!ParseDType(config.kv_dtype, &options.kv_dtype) ||
      (options.kv_dtype != DType::kF32 && options.kv_dtype != DType::kF16 &&
       options.kv_dtype != DType::kBF16)) {
    return InvalidArgument("kv_dtype: '{}', must be f32, f16 or bf16", config.kv_dtype);
  }
  options.block_size = b;
  options.kv_tokens = config.kv_tokens;
  options.max_length = config.max_length;
  options.max_sequences = config.max_sequences;
  options.prefill_chunk = config.prefill_chunk;
  options.kv_audit = config.kv_audit;
  options.prefix_cache = config.enable_prefix_cache;
  options.kv_offload = config.kv_offload;
  if (config.kv_offload && config.device == "cpu") {
    return InvalidArgument("kv_offload: moves K and V out of a GPU's memory, the device is cpu");
  }
  TALON_ASSIGN_OR_RETURN(options.step.specpv, MakeSpecPvConfig(config));
  return FillSpeculation(config, model);
}

}  // namespace talon
