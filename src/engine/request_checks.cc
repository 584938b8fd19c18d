#include "engine/request_checks.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/valid_values.h"
#include "spec/drafter.h"
#include "spec/drafter_list.h"
#include "text/stop_strings.h"

namespace talon {
namespace {

Status CheckPromptTokens(const GenerateRequest& request, int vocabulary) {
  if (request.prompt.empty()) return InvalidArgument("prompt: no tokens");
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const int32_t token = request.prompt[i];
    if (token < 0 || token >= vocabulary) {
      return InvalidArgument("prompt: token {} at {}, vocabulary {}", token, i, vocabulary);
    }
  }
  return OkStatus();
}

Status CheckPromptOutputs(const GenerateRequest& request) {
  const PromptOutputs& wanted = request.prompt_outputs;
  TALON_RETURN_IF_ERROR(
      CheckRange("prompt_logprobs", wanted.logprobs, SamplingParams::kLogProbsRange));
  if (wanted.pooling != Pooling::kNone && request.sampling.max_tokens > 0) {
    return InvalidArgument("max_tokens: {}, must be 0 where the prompt becomes a vector",
                           request.sampling.max_tokens);
  }
  return OkStatus();
}

// The prompt and one token fit into the context, all tokens into the pool.
Status CheckLength(const GenerateRequest& request, const RequestLimits& limits) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int max_length = limits.options.max_length;
  if (prompt + std::min(request.sampling.max_tokens, 1) > max_length) {
    return InvalidArgument("prompt: {} tokens, the context holds {}{}", prompt, max_length,
                           request.sampling.max_tokens > 0 ? " and one must be left" : "");
  }
  const auto longest =
      static_cast<int>(std::min<int64_t>(prompt + request.sampling.max_tokens, max_length));
  const int blocks = limits.options.BlocksOf(longest);
  if (blocks > limits.kv_blocks) {
    return ResourceExhausted("kv: {} tokens need {} blocks, the pool has {}", longest, blocks,
                             limits.kv_blocks);
  }
  return OkStatus();
}

Status CheckSpecPv(const SpecPvOverrides& wanted, const EngineOptions& options) {
  const SpecPvConfig& specpv = options.step.specpv;
  if (!wanted.ask()) return OkStatus();
  if (!specpv.enabled) {
    return InvalidArgument("specpv: the engine runs without it (enable_specpv)");
  }
  const SpecPvConfig config = WithOverrides(specpv, wanted);
  TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(config));
  if (options.kv_offload && config.retrieval_blocks > specpv.retrieval_blocks) {
    return InvalidArgument("specpv: {} blocks, the copies on the device hold {}",
                           config.retrieval_blocks, specpv.retrieval_blocks);
  }
  return OkStatus();
}

}  // namespace

Status CheckRequest(const GenerateRequest& request, const RequestLimits& limits) {
  TALON_RETURN_IF_ERROR(CheckPromptTokens(request, limits.vocabulary));
  TALON_RETURN_IF_ERROR(request.sampling.Validate(limits.vocabulary));
  TALON_RETURN_IF_ERROR(CheckPromptOutputs(request));
  TALON_RETURN_IF_ERROR(
      CheckRange("max_draft_nodes", request.max_draft_nodes, GenerateRequest::kDraftNodesRange));
  TALON_RETURN_IF_ERROR(CheckLength(request, limits));
  const bool random_accept = limits.options.step.accept != AcceptMode::kMatch;
  if (request.sampling.logprobs >= 0 && request.sampling.temperature > 0 && random_accept) {
    return InvalidArgument("logprobs: only with acceptance 'match'");
  }
  TALON_RETURN_IF_ERROR(CheckSpecPv(request.specpv, limits.options));
  TALON_RETURN_IF_ERROR(SourcesOf(request, limits.drafters).status());
  if (!request.stop.empty() && !limits.has_tokenizer) {
    return InvalidArgument("stop: the model has no tokenizer");
  }
  return StopMatcher::Create(request.stop).status();
}

Result<uint32_t> SourcesOf(const GenerateRequest& request,
                           std::span<const std::string_view> drafters) {
  if (request.drafter.empty()) return DraftRequest::kAllSources;
  TALON_ASSIGN_OR_RETURN(const DrafterList wanted, DrafterList::Parse(request.drafter));
  uint32_t sources = 0;
  for (const DrafterKind kind : wanted.kinds()) {
    const auto at = std::ranges::find(drafters, std::string_view(DrafterKindName(kind)));
    if (at == drafters.end()) {
      const std::string known =
          drafters.empty() ? "none" : fmt::format("{}", fmt::join(drafters, ", "));
      return InvalidArgument("drafter: '{}', this engine has {}", DrafterKindName(kind), known);
    }
    sources |= uint32_t{1} << (at - drafters.begin());
  }
  return sources;
}

}  // namespace talon
