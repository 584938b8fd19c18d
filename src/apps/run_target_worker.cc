#include "apps/run_target_worker.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "apps/common/stop_signal.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "apps/run_worker.h"
#include "engine/grammar_compiler.h"
#include "engine/sessions/session_thread.h"
#include "serve/grpc/target_service.h"
#include "setup/engine_settings.h"
#include "setup/loader.h"
#include "setup/settings.h"

namespace talon {
namespace {

// What a call may ask for, whatever model is loaded.
SessionOptions SessionLimits(const Config& config) {
  const WorkerConfig& worker = config.worker;
  SessionOptions options;
  options.max_sessions = worker.max_sessions;
  options.session_ttl = std::chrono::seconds(worker.session_ttl_seconds);
  options.max_tree_nodes = worker.max_tree_nodes;
  options.max_prompt_tokens = worker.max_prompt_tokens;
  options.engine.max_sequences = config.max_sequences;
  return options;
}

// The model with its sessions.
class Target {
 public:
  Target(Config config, Metrics* metrics) : config_(std::move(config)), metrics_(metrics) {}

  Status Load() {
    SessionOptions options = SessionLimits(config_);
    TALON_ASSIGN_OR_RETURN(options.engine.step.specpv, MakeSpecPvConfig(config_));
    TALON_ASSIGN_OR_RETURN(model_, LoadTarget(config_, "", options.TreeRows()));
    if (!model_->drafters.none()) {
      return InvalidArgument("speculative_algorithm: '{}', but a target worker's clients draft",
                             model_->drafters.Name());
    }
    options.engine = model_->engine_options;
    if (options.engine.kv_tokens == 0) {
      options.engine.kv_tokens = DefaultKvTokens(*model_, options.max_sessions);
    }
    grammars_ = std::make_unique<GrammarCompiler>(model_->tokenizer.get());
    TALON_ASSIGN_OR_RETURN(auto engine, SessionEngine::Create({.backend = model_->backend.get(),
                                                               .target = model_->target.get(),
                                                               .metrics = metrics_,
                                                               .grammars = grammars_.get()},
                                                              options));
    sessions_ =
        std::make_unique<SessionThread>(std::move(engine), std::chrono::seconds(60), RequestStop);
    return OkStatus();
  }

  std::string Announcement() const {
    const SessionOptions& options = sessions_->engine().options();
    const int pool = sessions_->snapshot().blocks * options.engine.block_size;
    Table table({});
    table.Add({"target", fmt::format("{} on {}", ShortModelName(model_->name),
                                     model_->backend->info().description)});
    table.Add({"context",
               fmt::format("{} tokens, prompts of {} at most",
                           std::min(options.engine.max_length, pool), options.max_prompt_tokens)});
    table.Add({"sessions", fmt::format("{}, idle for {} s at most, {} calls in a pass",
                                       options.max_sessions, options.session_ttl.count(),
                                       std::min(options.engine.max_sequences,
                                                config_.worker.handler_threads))});
    table.Add({"trees", fmt::format("{} nodes at most", options.max_tree_nodes)});
    table.Add({"KV pool", fmt::format("{} tokens", pool)});
    return table.ToString(/*all_left=*/true);
  }

  SessionThread* sessions() { return sessions_.get(); }
  bool loaded() const { return sessions_ != nullptr; }

 private:
  Config config_;
  Metrics* metrics_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<GrammarCompiler> grammars_;
  std::unique_ptr<SessionThread> sessions_;  // ends before the model
};

}  // namespace

Result<int> RunTargetWorker(Config config) {
  config.touch_memory = true;
  SpeculativeConfig& speculative = config.speculative;  // its clients draft
  if (IsAutoMethod(speculative.method) && speculative.draft_model_path.empty()) {
    speculative.method = "NONE";
  }
  Metrics metrics;
  Target target(config, &metrics);
  TargetService service({.model_name = ShortModelName(config.model),
                         .device = config.device,
                         .limits = {.max_tree_nodes = config.worker.max_tree_nodes,
                                    .max_tree_depth = SessionOptions::kMaxTreeDepth,
                                    .max_prompt_tokens = config.worker.max_prompt_tokens}});
  // Ranks that follow end here, so that only rank 0 listens.
  if (config.tensor_parallel > 1) TALON_RETURN_IF_ERROR(target.Load());
  return RunWorker({.kind = WorkerKind::kTarget,
                    .config = config.worker,
                    .service = &service,
                    .metrics = &metrics,
                    .load = [&]() -> Result<std::string> {
                      if (!target.loaded()) TALON_RETURN_IF_ERROR(target.Load());
                      service.Serve(target.sessions());
                      return target.Announcement();
                    },
                    .finish =
                        [&](std::chrono::milliseconds grace_period) {
                          target.sessions()->Shutdown(grace_period);
                        },
                    .health = [&] { return target.sessions()->snapshot().health; }});
}

}  // namespace talon
