// The draft worker's process.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "apps/common/stop_signal.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "apps/run_worker.h"
#include "base/file.h"
#include "remote/draft_sessions.h"
#include "serve/grpc/draft_service.h"
#include "setup/device.h"
#include "setup/loader.h"
#include "setup/settings.h"
#include "spec/drafters/draft_corpus.h"
#include "spec/drafters/standalone_drafter.h"

namespace talon {
namespace {

// A drafter with what it runs on.
struct LoadedDrafter {
  std::string name;
  std::unique_ptr<Backend> backend;  // null: it needs none
  Metrics metrics;
  std::unique_ptr<DraftSessions> sessions;
  int vocab_size = 0;  // 0: any
};

DraftSessionsOptions SessionsOptions(const WorkerConfig& worker, Metrics* metrics) {
  DraftSessionsOptions options;
  options.max_draft_tokens = worker.max_draft_tokens;
  options.num_beams = worker.num_beams;
  options.temperature = worker.draft_temperature;
  options.max_sessions = worker.max_sessions;
  options.metrics = metrics;
  options.on_stopped = RequestStop;
  return options;
}

// 1 GiB of K/V, but at least one context and no more than all sessions could use.
int DraftKvTokens(const ModelConfig& model, int context, int sessions) {
  constexpr int64_t kPoolBytes = int64_t{1} << 30;
  const KvShape shape{.num_layers = model.num_layers,
                      .kv_heads = model.num_kv_heads,
                      .head_dim = model.head_dim,
                      .block_size = 16,
                      .dtype = DType::kBF16};
  const int64_t affordable = kPoolBytes / static_cast<int64_t>(shape.BytesPerToken());
  return static_cast<int>(
      std::min<int64_t>(std::max<int64_t>(affordable, context), int64_t{1} * context * sessions));
}

Status LoadDraftModel(const Config& config, LoadedDrafter* loaded) {
  if (config.tensor_parallel > 1) {
    return Unimplemented("tensor_parallel: {} ranks are for targets, a draft worker has one",
                         config.tensor_parallel);
  }
  std::string dir = config.model;
  if (dir.empty()) {
    TALON_ASSIGN_OR_RETURN(dir, BundledModelDir("tiny-draft"));
  }
  TALON_ASSIGN_OR_RETURN(const ModelConfig model, LoadModelConfig(dir));
  const int context =
      config.max_length > 0 ? std::min(config.max_length, model.max_context) : model.max_context;
  const int sessions = config.worker.max_sessions;
  WeightFormat weights = WeightFormat::kAsStored;
  if (!ParseWeightFormat(config.weights, &weights)) {
    return InvalidArgument("weights: '{}', must be {}", config.weights, WeightFormatNames());
  }
  ActivationFormat activations = ActivationFormat::kAuto;
  if (!ParseActivationFormat(config.activations, &activations)) {
    return InvalidArgument("activations: '{}', must be auto or fp8", config.activations);
  }
  const int kv_tokens =
      config.kv_tokens > 0 ? config.kv_tokens : DraftKvTokens(model, context, sessions);
  const StandaloneOptions options{
      .model_path = dir,
      .budget = {.max_nodes = DraftSessionsOptions::kMaxNodes + 1,
                 .max_depth = DraftSessionsOptions::kMaxLength,
                 .top_k = DraftSessionsOptions::kMaxBeams},
      .sample = true,
      .drawn_trees = true,
      .vocab_size = model.vocab_size,
      .cache = {.max_length = context,
                .max_sequences = sessions + DraftSessionsOptions::kMaxBatch,
                .kv_tokens = kv_tokens,
                .prefix_index = config.enable_prefix_cache},
      .weights = weights,
      .activations = activations};
  TALON_ASSIGN_OR_RETURN(loaded->backend, NewBackend(config));
  TALON_ASSIGN_OR_RETURN(auto drafter,
                         StandaloneDrafter::Load(options, loaded->backend.get(), &loaded->metrics));
  DraftSessionsOptions calls = SessionsOptions(config.worker, &loaded->metrics);
  calls.max_tokens = kv_tokens;
  calls.eos_ids.assign(model.eos_token_ids.begin(), model.eos_token_ids.end());
  loaded->name = ShortModelName(dir);
  loaded->vocab_size = model.vocab_size;
  loaded->sessions = std::make_unique<DraftSessions>(std::move(drafter), std::move(calls));
  return OkStatus();
}

// The corpus is text of the model's tokenizer.
Result<std::vector<std::vector<int32_t>>> LoadCorpus(const Config& config,
                                                     const std::string& path) {
  if (path.empty()) return std::vector<std::vector<int32_t>>();
  std::string dir = config.model;
  if (dir.empty()) {
    TALON_ASSIGN_OR_RETURN(dir, BundledModelDir("tiny"));
  }
  TALON_ASSIGN_OR_RETURN(const auto tokenizer, RequireTokenizer(dir));
  return ReadDraftCorpus(path, tokenizer->vocab_size(), [&](std::string_view text) {
    return tokenizer->Encode(text, /*add_special_tokens=*/false);
  });
}

Status LoadLookup(const Config& config, const DrafterList& drafter, LoadedDrafter* loaded) {
  DrafterOptions options{.ngram_mode = config.speculative.ngram_mode,
                         .ngram_max_depth = config.speculative.ngram_max_depth};
  if (drafter.Has(DrafterKind::kNgram)) {
    TALON_ASSIGN_OR_RETURN(options.ngram_corpus,
                           LoadCorpus(config, config.speculative.ngram_corpus));
  }
  if (drafter.Has(DrafterKind::kSuffix)) {
    TALON_ASSIGN_OR_RETURN(options.suffix_corpus,
                           LoadCorpus(config, config.speculative.suffix_corpus));
  }
  TALON_ASSIGN_OR_RETURN(auto made, MakeDrafter(drafter, options, {.metrics = &loaded->metrics}));
  loaded->name = drafter.Name();
  loaded->sessions = std::make_unique<DraftSessions>(
      std::move(made), SessionsOptions(config.worker, &loaded->metrics));
  return OkStatus();
}

std::string Announcement(const Config& config, const LoadedDrafter& loaded) {
  Table table({});
  table.Add({"drafter", loaded.backend == nullptr
                            ? loaded.name
                            : loaded.name + " on " + loaded.backend->info().description});
  table.Add({"drafts", fmt::format("{} tokens, {} beams, temperature {} where a call does not say",
                                   config.worker.max_draft_tokens, config.worker.num_beams,
                                   config.worker.draft_temperature)});
  table.Add({"sessions", fmt::format("{} at once", config.worker.max_sessions)});
  return table.ToString(/*all_left=*/true);
}

}  // namespace

Result<int> RunDraftWorker(Config config, const DrafterList& drafter) {
  TALON_RETURN_IF_ERROR(CheckRemoteDrafter(drafter));
  TALON_RETURN_IF_ERROR(ApplyLogSettings(config));
  TALON_RETURN_IF_ERROR(CheckWorkerConfig(config.worker));
  LoadedDrafter loaded;
  const bool has_model = drafter.Has(DrafterKind::kStandalone);
  DraftServiceOptions options{
      .model_name = has_model ? ShortModelName(config.model.empty() ? "tiny-draft" : config.model)
                              : drafter.Name(),
      .device = config.device,
      .limits = {.max_prompt_tokens = config.worker.max_prompt_tokens},
      .metrics = &loaded.metrics};
  DraftService service(std::move(options));
  return RunWorker({.kind = WorkerKind::kDraft,
                    .config = config.worker,
                    .service = &service,
                    .metrics = &loaded.metrics,
                    .load = [&]() -> Result<std::string> {
                      TALON_RETURN_IF_ERROR(has_model ? LoadDraftModel(config, &loaded)
                                                      : LoadLookup(config, drafter, &loaded));
                      service.Serve(loaded.sessions.get(), loaded.vocab_size);
                      return Announcement(config, loaded);
                    },
                    .finish = [](std::chrono::milliseconds) {},
                    .health = [&] { return loaded.sessions->health(); }});
}

}  // namespace talon
