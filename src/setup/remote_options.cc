#include "setup/remote_options.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/log.h"
#include "setup/draft_choice.h"
#include "setup/settings.h"
#include "spec/drafter_list.h"

namespace talon {
namespace {

constexpr double kLongestDraft = 10;        // seconds
constexpr float kTemperatureMargin = 0.01;  // larger differences of draft and target are warned of

// Flags of the target worker's own command.
constexpr std::string_view kWorkerFlags[] = {"--device", "--enable-specpv", "--kv-dtype",
                                             "--kv-tokens", "--weights"};

}  // namespace

DraftClientOptions MakeDraftClientOptions(const RemoteConfig& remote) {
  DraftClientOptions options;
  options.max_length = remote.max_draft_tokens;
  options.num_beams = remote.num_beams;
  options.max_nodes = remote.draft_nodes;
  options.overlap = remote.overlap;
  options.adaptive = remote.adaptive_length;
  options.timeout_seconds = std::min<double>(remote.timeout_s / 3, kLongestDraft);
  return options;
}

DraftBudget RemoteDraftBudget(const Config& config) {
  const DraftClientOptions options = MakeDraftClientOptions(config.remote);
  return {.max_nodes = options.Nodes(options.max_length) + 1,
          .max_depth = options.max_length,
          .top_k = options.num_beams};
}

Result<OrchestratorOptions> MakeOrchestratorOptions(const Config& config,
                                                    const ModelConfig& model) {
  const RemoteConfig& remote = config.remote;
  OrchestratorOptions options;
  options.max_rounds = remote.max_rounds;
  options.timeout_seconds = remote.timeout_s;
  options.max_length = model.max_context;
  if (config.max_length > 0) options.max_length = std::min(options.max_length, config.max_length);
  if (remote.max_context_window > 0) {
    options.max_length = std::min(options.max_length, remote.max_context_window);
  }
  options.draft_temperature = remote.draft_temperature;
  if (config.speculative.acceptance == "rejection") {
    options.rejection = true;
  } else if (config.speculative.acceptance != "match") {
    return InvalidArgument("acceptance: '{}', must be match or rejection with a remote target",
                           config.speculative.acceptance);
  }
  options.eos_ids.assign(model.eos_token_ids.begin(), model.eos_token_ids.end());
  options.vocab_size = model.vocab_size;
  options.draft = MakeDraftClientOptions(remote);
  const float temperature = config.sampling.temperature;
  if (remote.draft_temperature >= 0 &&
      std::abs(remote.draft_temperature - temperature) > kTemperatureMargin) {
    LogWarning("draft_temperature {} differs from temperature {}: fewer drafts will be accepted",
               remote.draft_temperature, temperature);
  }
  return options;
}

Status CheckRemoteMethod(const Config& config) {
  TALON_RETURN_IF_ERROR(CheckRemoteConfig(config.remote));
  TALON_ASSIGN_OR_RETURN(const DraftChoice choice, ChooseDrafters(config));
  const DrafterList& drafters = choice.drafters;
  const RemoteConfig& remote = config.remote;
  const bool asks_drafts = drafters.Has(DrafterKind::kRemote);
  if (asks_drafts && remote.draft_address.empty() && remote.target_address.empty()) {
    return InvalidArgument("speculative_algorithm: REMOTE needs --draft-address HOST:PORT");
  }
  if (!asks_drafts && !remote.draft_address.empty()) {
    return InvalidArgument("draft_address: needs --speculative-algorithm REMOTE, which is {}",
                           drafters.Name());
  }
  const bool beside_target = !drafters.none() && drafters != DrafterKind::kRemote;
  if (!remote.target_address.empty() && beside_target) {
    return InvalidArgument(
        "speculative_algorithm: {} runs beside its target; with --target-address it must be REMOTE "
        "or NONE",
        drafters.Name());
  }
  return OkStatus();
}

Status CheckIgnoredFlags(const Config& config, const FlagGiven& given) {
  if (!config.remote.target_address.empty()) {
    for (const std::string_view flag : kWorkerFlags) {
      if (given(flag)) {
        return InvalidArgument("{}: is the target worker's to say, not with --target-address",
                               flag);
      }
    }
    return OkStatus();
  }
  Config names;
  for (const Setting& setting : SettingsOf(&names, kTargetSettings)) {
    if (!given(setting.flag)) continue;
    return InvalidArgument("{}: needs --target-address HOST:PORT", setting.flag);
  }
  if (!config.remote.draft_address.empty()) return OkStatus();
  for (const Setting& setting : SettingsOf(&names, kRemoteSettings)) {
    if (!given(setting.flag)) continue;
    return InvalidArgument("{}: needs --target-address or --draft-address", setting.flag);
  }
  return OkStatus();
}

}  // namespace talon
