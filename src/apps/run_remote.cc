#include "apps/run_remote.h"

#include <chrono>
#include <utility>

#include "apps/ranks/load_or_follow.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/end_tokens.h"
#include "remote/remote_drafter.h"
#include "remote/telemetry.h"
#include "serve/grpc/rpc_links.h"
#include "setup/loader.h"
#include "setup/remote_options.h"

namespace talon {
namespace {

constexpr auto kPingTime = std::chrono::seconds(10);  // busy workers answer late

RpcLinkOptions LinkOptions(const RemoteConfig& remote, const std::string& address, Metrics* metrics,
                           std::function<bool()> cancelled) {
  RpcLinkOptions options;
  options.address = address;
  options.security = {.cert_file = remote.tls.cert_file,
                      .key_file = remote.tls.key_file,
                      .ca_file = remote.tls.ca_file,
                      .insecure = remote.tls.insecure};
  options.simulated_rtt = std::chrono::microseconds(
      static_cast<int64_t>(1000 * static_cast<double>(remote.simulated_rtt_ms)));
  options.metrics = metrics;
  options.cancelled = std::move(cancelled);
  return options;
}

// Null: the workers are taken to have one vocabulary.
Result<std::unique_ptr<VocabBridge>> MakeBridge(const Config& config, const Tokenizer* target) {
  const std::string& dir = config.speculative.draft_model_path;
  if (dir.empty() || target == nullptr) return std::unique_ptr<VocabBridge>();
  TALON_ASSIGN_OR_RETURN(auto draft, RequireTokenizer(dir));
  TALON_ASSIGN_OR_RETURN(
      auto bridge, VocabBridge::Build(target, std::move(draft), config.remote.strict_vocab_check));
  if (bridge->identity()) bridge.reset();
  return bridge;
}

// One of the other kind will never do; one that cannot be reached now may come later.
Status CheckKind(const Result<PingAnswer>& worker, const std::string& what) {
  const bool other_kind = worker.status().code() == StatusCode::kUnimplemented;
  return other_kind ? worker.status().WithContext(what) : OkStatus();
}

Status CheckVocabulary(const Result<PingAnswer>& worker, const std::string& what, int vocab_size) {
  if (!worker.ok() || worker->vocab_size == 0 || worker->vocab_size == vocab_size)
    return OkStatus();
  return InvalidArgument("{}: '{}' has a vocabulary of {}, the model here of {}", what,
                         worker->model_name, worker->vocab_size, vocab_size);
}

struct DraftEnd {
  std::unique_ptr<DraftLink> link;
  std::unique_ptr<VocabBridge> bridge;  // null: one vocabulary
};

Result<DraftEnd> OpenDraftEnd(const Config& config, const Tokenizer* tokenizer, int vocab_size,
                              Metrics* metrics, std::function<bool()> cancelled) {
  DraftEnd end;
  TALON_ASSIGN_OR_RETURN(end.bridge, MakeBridge(config, tokenizer));
  const RemoteConfig& remote = config.remote;
  TALON_ASSIGN_OR_RETURN(end.link, RpcDraftLink::Open(LinkOptions(remote, remote.draft_address,
                                                                  metrics, std::move(cancelled))));
  const std::string worker = "draft worker " + remote.draft_address;
  const auto ping = end.link->Ping(RemoteClock::now() + kPingTime);
  TALON_RETURN_IF_ERROR(CheckKind(ping, worker));
  if (!ping.ok()) LogWarning("{}: {}", worker, ping.status().message());
  const Status same = CheckVocabulary(ping, worker, vocab_size);
  if (!same.ok() && end.bridge == nullptr && remote.strict_vocab_check) {
    return same.WithContext("strict_vocab_check");
  }
  return end;
}

// The target's text by the orchestrator.
class OrchestratedModel : public RemoteModel {
 public:
  Status Open(const Config& settings, std::function<bool()> cancelled);
  Status Check(const GenerateRequest& request) const override {
    return orchestrator_->Check(request);
  }
  GenerateResult Generate(GenerateRequest request) override;

 private:
  std::unique_ptr<RpcTargetLink> target_;
  DraftEnd draft_;
  Telemetry telemetry_;
  std::string telemetry_path_;
  std::string trace_path_;
  std::unique_ptr<Orchestrator> orchestrator_;
};

// Files that are written at the end are begun at the start, so that a path that cannot be is
// noticed before anything is computed.
Status BeginFile(const char* setting, const std::string& path) {
  return path.empty() ? OkStatus() : WriteFile(path, "").WithContext(setting);
}

Status OrchestratedModel::Open(const Config& settings, std::function<bool()> cancelled) {
  const RemoteConfig& remote = settings.remote;
  telemetry_path_ = remote.telemetry;
  trace_path_ = settings.trace;
  TALON_RETURN_IF_ERROR(BeginFile("telemetry", telemetry_path_));
  TALON_RETURN_IF_ERROR(BeginFile("trace", trace_path_));
  name = settings.model;
  if (name.empty()) {
    TALON_ASSIGN_OR_RETURN(name, BundledModelDir("tiny"));
  }
  TALON_ASSIGN_OR_RETURN(config, LoadModelConfig(name));
  TALON_ASSIGN_OR_RETURN(tokenizer, LoadTokenizer(name));
  TALON_ASSIGN_OR_RETURN(OrchestratorOptions options, MakeOrchestratorOptions(settings, config));
  options.eos_ids = EndTokens(config, tokenizer.get());
  address = remote.target_address;
  TALON_ASSIGN_OR_RETURN(target_,
                         RpcTargetLink::Open(LinkOptions(remote, address, &metrics, cancelled)));
  const std::string worker = "target worker " + address;
  const auto ping = target_->Ping(RemoteClock::now() + kPingTime);
  TALON_RETURN_IF_ERROR(CheckKind(ping, worker));
  TALON_RETURN_IF_ERROR(CheckVocabulary(ping, worker, config.vocab_size));
  if (!ping.ok()) {
    LogWarning("{}: {}; trying for {:g} s (--timeout-s)", worker, ping.status().message(),
               remote.timeout_s);
  }
  drafter_name = "NONE";
  if (!remote.draft_address.empty()) {
    drafter_name = "REMOTE " + remote.draft_address;
    TALON_ASSIGN_OR_RETURN(
        draft_, OpenDraftEnd(settings, tokenizer.get(), config.vocab_size, &metrics, cancelled));
  }
  orchestrator_ =
      std::make_unique<Orchestrator>(Orchestrator::Parts{.target = target_.get(),
                                                         .draft = draft_.link.get(),
                                                         .bridge = draft_.bridge.get(),
                                                         .tokenizer = tokenizer.get(),
                                                         .telemetry = &telemetry_,
                                                         .metrics = &metrics,
                                                         .cancelled = std::move(cancelled)},
                                     std::move(options));
  return OkStatus();
}

GenerateResult OrchestratedModel::Generate(GenerateRequest request) {
  GenerateResult result = orchestrator_->Generate(std::move(request));
  Status written;
  if (!telemetry_path_.empty()) written = telemetry_.Write(telemetry_path_);
  if (written.ok() && !trace_path_.empty()) written = WriteFile(trace_path_, telemetry_.ToTrace());
  if (!written.ok()) LogWarning("{}", written.message());
  return result;
}

Result<std::unique_ptr<Drafter>> MakeRemoteDrafter(const Config& config, const DraftBudget& budget,
                                                   const Tokenizer* tokenizer,
                                                   const DrafterTarget& target) {
  TALON_RETURN_IF_ERROR(CheckRemoteMethod(config));
  RemoteDrafterOptions options{.client = MakeDraftClientOptions(config.remote),
                               .draft_temperature = config.remote.draft_temperature,
                               .vocab_size = target.vocab_size};
  options.client.max_length = budget.max_depth;
  options.client.num_beams = budget.top_k;
  options.client.max_nodes = budget.max_nodes - 1;
  options.client.draws = config.speculative.acceptance == "rejection";
  if (target.decoder != nullptr) {
    options.client.end_tokens = EndTokens(target.decoder->config(), tokenizer);
  }
  if (!config.remote.telemetry.empty()) {
    LogWarning("telemetry: nothing is written, it tells of remote targets (--target-address)");
  }
  TALON_ASSIGN_OR_RETURN(
      DraftEnd end, OpenDraftEnd(config, tokenizer, target.vocab_size, target.metrics, nullptr));
  return std::unique_ptr<Drafter>(std::make_unique<RemoteDrafter>(
      RemoteDrafter::Parts{
          .link = std::move(end.link), .bridge = std::move(end.bridge), .metrics = target.metrics},
      options));
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadTarget(const Config& config, const std::string& shape,
                                                int min_output_rows) {
  TALON_ASSIGN_OR_RETURN(auto model, LoadOrFollow(config, shape, min_output_rows));
  model->make_remote = MakeRemoteDrafter;
  return model;
}

Result<std::unique_ptr<RemoteModel>> OpenRemoteModel(const Config& config,
                                                     std::function<bool()> cancelled) {
  TALON_RETURN_IF_ERROR(CheckRemoteMethod(config));
  auto model = std::make_unique<OrchestratedModel>();
  TALON_RETURN_IF_ERROR(model->Open(config, std::move(cancelled)));
  return std::unique_ptr<RemoteModel>(std::move(model));
}

}  // namespace talon
