#include "setup/loader.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <sstream>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "model/files/model_dir.h"
#include "setup/device.h"
#include "setup/draft_choice.h"
#include "setup/engine_settings.h"
#include "setup/progress.h"
#include "setup/ranks.h"
#include "setup/settings.h"
#include "spec/drafters/draft_corpus.h"
#include "spec/policy/adaptive.h"
#include "text/bad_words.h"

namespace talon {
namespace {

// Size of the verify curve that is measured at the start.
constexpr int kCurveRows = 128;
constexpr int kBatchCurveRows = 2048;  // where that many cost less than in proportion
constexpr int kCurveContext = 2048;

// Shows how much of a model is loaded.
std::function<void(double)> ShowLoading(const StatusLine& line, const std::string& name) {
  return [&line, name](double fraction) {
    line.Show(fmt::format("loading {} {:3.0f}%", name, fraction * 100));
  };
}

// The error of a setting that is a text, where there is no tokenizer.
Status NoTokenizer(const char* setting) {
  TALON_RETURN_IF_ERROR(Tokenizer::Supported().WithContext(setting));
  return InvalidArgument("{}: the model has no tokenizer", setting);
}

// The documents of the file that a setting names; none for "".
Result<std::vector<std::vector<int32_t>>> ReadCorpus(const char* setting, const std::string& path,
                                                     const LoadedModel& model) {
  if (path.empty()) return std::vector<std::vector<int32_t>>();
  const Tokenizer* tokenizer = model.tokenizer.get();
  if (tokenizer == nullptr) return NoTokenizer(setting);
  return ReadDraftCorpus(path, model.target->config().vocab_size,
                         [tokenizer](std::string_view text) {
                           return tokenizer->Encode(text, /*add_special_tokens=*/false);
                         });
}

// One text a line.
Result<std::vector<std::vector<int32_t>>> ParseBadWords(const std::string& lines,
                                                        const Tokenizer* tokenizer) {
  std::vector<std::string> words;
  std::stringstream stream(lines);
  for (std::string word; std::getline(stream, word);) {
    if (!word.empty()) words.push_back(std::move(word));
  }
  if (words.empty()) return std::vector<std::vector<int32_t>>();
  if (tokenizer == nullptr) return NoTokenizer("bad_words");
  return EncodeBadWords(words, *tokenizer);
}

// "17=-2.5,42=1"
Result<std::vector<std::pair<int32_t, float>>> ParseLogitBias(const std::string& text) {
  std::vector<std::pair<int32_t, float>> biases;
  std::stringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    int token = 0;
    float bias = 0;
    int length = 0;
    const int read = std::sscanf(item.c_str(), "%d=%f %n", &token, &bias, &length);
    if (read != 2 || length != static_cast<int>(item.size())) {
      return InvalidArgument("logit_bias: '{}', must be token=bias", item);
    }
    biases.emplace_back(token, bias);
  }
  std::sort(biases.begin(), biases.end());
  return biases;
}

// Only the leader of several ranks does.
bool ShowsProgress(const LoadOptions& options) {
  return options.ranks == nullptr || options.ranks->leads();
}

Status MakeRandomModel(const std::string& shape, LoadOptions options, LoadedModel* model) {
  TALON_ASSIGN_OR_RETURN(const ModelConfig random, ShapeByName(shape));
  model->name = shape + " (random weights)";
  const StatusLine line;
  if (ShowsProgress(options)) options.progress = ShowLoading(line, model->name);
  TALON_ASSIGN_OR_RETURN(model->target, Decoder::Random(random, model->backend.get(), options, 1));
  return OkStatus();
}

// Loads the model and its tokenizer; `dir` empty: the bundled one.
Status LoadFromDirectory(const std::string& dir, LoadOptions options, LoadedModel* model) {
  TALON_ASSIGN_OR_RETURN(model->name, ModelDir(dir));
  {
    const StatusLine line;
    if (ShowsProgress(options)) options.progress = ShowLoading(line, model->name);
    TALON_ASSIGN_OR_RETURN(model->target,
                           Decoder::Load(model->name, model->backend.get(), options));
  }
  TALON_ASSIGN_OR_RETURN(model->tokenizer, LoadTokenizer(model->name));
  return OkStatus();
}

// The verify curve of this machine and model: from its file, or measured (and saved there).
Result<VerifyCurve> GetVerifyCurve(LoadedModel* model, const Config& config) {
  const std::string& path = config.speculative.verify_curve;
  if (!path.empty() && FileExists(path)) return VerifyCurve::Load(path);
  const EngineOptions& options = model->engine_options;
  const ModelConfig& target = model->target->config();
  const int rows = std::min(options.MaxTreeRows(), kCurveRows);
  const int batch_rows = std::min(options.MaxTreeRows(), kBatchCurveRows);
  const int tokens = std::min(kCurveContext + rows, target.max_context) + options.block_size;
  const KvShape shape{.num_layers = target.num_layers,
                      .kv_heads = model->target->kv_heads(),
                      .head_dim = target.head_dim,
                      .block_size = options.block_size,
                      .dtype = options.kv_dtype,
                      .num_blocks = tokens / options.block_size,
                      .staging_rows = batch_rows};
  const StatusLine line;
  line.Show("measuring passes of the model");
  Metrics unused;
  TALON_ASSIGN_OR_RETURN(const auto kv, KvCache::Create(model->backend.get(), shape, &unused,
                                                        {.ops = model->target->kv_ops()}));
  TALON_ASSIGN_OR_RETURN(
      VerifyCurve curve,
      MeasureVerifyCurve(model->backend.get(), model->target.get(), kv.get(), rows, batch_rows));
  if (!path.empty()) TALON_RETURN_IF_ERROR(curve.Save(path));
  return curve;
}

DrafterTarget DrafterTargetOf(const LoadedModel& model, const EngineOptions& options,
                              Metrics* metrics) {
  return {.backend = model.backend.get(),
          .decoder = model.target.get(),
          .metrics = metrics,
          .vocab_size = model.target->config().vocab_size,
          .cache = options.DraftCache(model.target->config().max_context),
          .model_path = model.name};
}

// The model's drafter options, with what depends on the engine's drafters and its step.
Result<DrafterOptions> DrafterOptionsFor(const LoadedModel& model, const Config& config,
                                         const DrafterList& drafters, const StepOptions& step) {
  DrafterOptions options = model.drafter_options;
  options.budget = step.budget;
  if (step.specpv.enabled && config.speculative.draft_window_size < 0) {
    // Steps that read little of the prefix should not wait for a draft that reads all of it.
    options.window = step.specpv.RetrievalTokens() + step.specpv.WindowTokens();
    options.sink = std::max(options.sink, step.specpv.SinkTokens());
  }
  if (options.draft_model_path.empty()) {
    options.draft_model_path = HeadBesideFor(drafters, model.name);
  }
  const bool standalone = drafters.Has(DrafterKind::kStandalone);
  if (options.draft_model_path.empty() && standalone && config.model.empty()) {
    TALON_ASSIGN_OR_RETURN(options.draft_model_path, BundledModelDir(BundledDraftModel(drafters)));
  }
  if (drafters.Has(DrafterKind::kNgram)) {
    TALON_ASSIGN_OR_RETURN(options.ngram_corpus,
                           ReadCorpus("ngram_corpus", config.speculative.ngram_corpus, model));
  }
  if (drafters.Has(DrafterKind::kSuffix)) {
    TALON_ASSIGN_OR_RETURN(options.suffix_corpus,
                           ReadCorpus("suffix_corpus", config.speculative.suffix_corpus, model));
  }
  options.make_remote = [&model, &config, budget = step.budget](
                            const DrafterTarget& target) -> Result<std::unique_ptr<Drafter>> {
    if (!model.make_remote) {
      return Unimplemented("method REMOTE: not here, this is built without gRPC");
    }
    return model.make_remote(config, budget, model.tokenizer.get(), target);
  };
  return options;
}

}  // namespace

Status ApplyLogSettings(const Config& config) {
  TALON_RETURN_IF_ERROR(CheckSettings(config, kModelSettings));
  LogLevel level = LogLevel::kWarning;  // also that of "auto"
  ParseLogLevel(config.log_level, &level);
  SetLogLevel(level);
  LogFormat format = LogFormat::kText;
  ParseLogFormat(config.log_format, &format);
  SetLogFormat(format);
  return OkStatus();
}

Result<std::unique_ptr<LoadedModel>> LoadModel(const Config& config, const std::string& shape,
                                               int min_output_rows, std::unique_ptr<Ranks> ranks,
                                               const BackendWrapper& wrap) {
  TALON_RETURN_IF_ERROR(ApplyLogSettings(config));
  TALON_RETURN_IF_ERROR(CheckRankSettings(config));
  if (ranks == nullptr && config.tensor_parallel > 1) {
    return Unimplemented("tensor_parallel: {} ranks are for engines, not for a model alone",
                         config.tensor_parallel);
  }
  TALON_ASSIGN_OR_RETURN(EngineSettings settings, MakeEngineSettings(config));
  const bool follows = ranks != nullptr && !ranks->leads();
  const LoadOptions load{
      .weights = settings.weights,
      .activations = settings.activations,
      .max_rows =
          std::max(settings.engine.MaxRows(), settings.engine.prefill_chunk + min_output_rows),
      .max_output_rows = std::max(settings.engine.MaxOutputRows(), min_output_rows),
      .ranks = ranks.get()};
  auto model = std::make_unique<LoadedModel>();
  model->ranks = std::move(ranks);
  model->engine_options = settings.engine;
  // A head that lies beside a model does not fit random weights.
  model->head_found = settings.head_found && shape.empty();
  model->drafters = settings.head_found && !shape.empty() ? DrafterList(DrafterKind::kSuffix)
                                                          : std::move(settings.drafters);
  model->drafter_options = std::move(settings.drafter);
  if (!config.trace.empty() && !follows) {
    TALON_ASSIGN_OR_RETURN(model->trace, TraceFile::Open(config.trace));
  }
  TALON_ASSIGN_OR_RETURN(model->backend, NewBackend(config, model->ranks.get()));
  if (wrap) model->backend = wrap(std::move(model->backend));
  TALON_RETURN_IF_ERROR(LinkRanks(config, model->backend.get(), model->ranks.get()));
  const Stopwatch watch;
  TALON_RETURN_IF_ERROR(shape.empty() ? LoadFromDirectory(config.model, load, model.get())
                                      : MakeRandomModel(shape, load, model.get()));
  model->load_seconds = watch.Seconds();
  if (model->ranks != nullptr) {
    TALON_RETURN_IF_ERROR(
        MeetRanks(config, *model->target, model->backend->info(), model->ranks.get()));
  }
  const int context = model->target->config().max_context;
  if (config.max_length > context) {
    LogWarning("max_length: {}, but the model's context is {} tokens, which is the limit",
               config.max_length, context);
  }
  return model;
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& dir) {
  const std::string path = dir + "/tokenizer.json";
  if (!FileExists(path) || !Tokenizer::Supported().ok()) return std::unique_ptr<Tokenizer>();
  TALON_RETURN_IF_ERROR(CheckFetched(path));
  return Tokenizer::Load(path);
}

Result<std::unique_ptr<Tokenizer>> RequireTokenizer(const std::string& dir) {
  TALON_ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer(dir));
  if (tokenizer != nullptr) return tokenizer;
  TALON_RETURN_IF_ERROR(Tokenizer::Supported());
  return MissingTokenizer(dir);
}

Result<const Tokenizer*> RequireTokenizer(const LoadedModel& model) {
  if (model.tokenizer != nullptr) return model.tokenizer.get();
  TALON_RETURN_IF_ERROR(Tokenizer::Supported());
  return MissingTokenizer(model.name);
}

Result<std::unique_ptr<Engine>> MakeEngine(LoadedModel* model, const Config& config,
                                           const DrafterList& drafters,
                                           std::unique_ptr<Drafter> custom) {
  EngineOptions options = model->engine_options;
  options.step.budget = DraftBudgetOf(config, drafters);
  Engine::Parts parts{.backend = model->backend.get(),
                      .target = model->target.get(),
                      .tokenizer = model->tokenizer.get(),
                      .drafter = std::move(custom),
                      .metrics = std::make_unique<Metrics>()};
  if (parts.drafter == nullptr && !drafters.none()) {
    const DrafterTarget target = DrafterTargetOf(*model, options, parts.metrics.get());
    TALON_ASSIGN_OR_RETURN(const DrafterOptions wanted,
                           DrafterOptionsFor(*model, config, drafters, options.step));
    auto drafter = MakeDrafter(drafters, wanted, target);
    if (!drafter.ok() && model->head_found && drafters == model->drafters) {
      LogWarning("{}; drafting with SUFFIX alone", drafter.status().message());
      model->head_found = false;
      model->drafters = DrafterKind::kSuffix;
      return MakeEngine(model, config, model->drafters);
    }
    TALON_ASSIGN_OR_RETURN(parts.drafter, std::move(drafter));
  }
  const SpecPvConfig& specpv = options.step.specpv;
  const bool chooses = parts.drafter != nullptr ||  // by what passes cost
                       (specpv.enabled && specpv.mode == SpecPvMode::kExact);
  if (chooses && config.speculative.adaptive) {
    if (model->curve.empty()) {
      TALON_ASSIGN_OR_RETURN(model->curve, GetVerifyCurve(model, config));
    }
    parts.policy = std::make_unique<AdaptivePolicy>(model->curve);
  }
  return Engine::Create(std::move(parts), options);
}

std::string DraftModelDir(const LoadedModel& model) {
  if (std::ranges::none_of(model.drafters.kinds(), NeedsDraftModel)) return "";
  const std::string& named = model.drafter_options.draft_model_path;
  return named.empty() ? HeadBesideFor(model.drafters, model.name) : named;
}

Result<SamplingParams> MakeSamplingParams(const SamplingConfig& config,
                                          const Tokenizer* tokenizer) {
  Config all;
  all.sampling = config;
  TALON_RETURN_IF_ERROR(CheckSettings(all, kSamplingSettings));
  SamplingParams params;
  params.max_tokens = config.max_tokens;
  params.temperature = config.temperature;
  params.top_k = config.top_k;
  params.top_p = config.top_p;
  params.min_p = config.min_p;
  params.repetition_penalty = config.repetition_penalty;
  params.frequency_penalty = config.frequency_penalty;
  params.presence_penalty = config.presence_penalty;
  params.min_tokens = config.min_tokens;
  params.ignore_eos = config.ignore_eos;
  params.stop_token_ids.assign(config.stop_token_ids.begin(), config.stop_token_ids.end());
  params.logprobs = config.logprobs;
  if (!config.stop.empty() && tokenizer == nullptr) return NoTokenizer("stop");
  // A random seed has 32 bits, short enough to be typed in again.
  params.seed = config.seed != -1 ? static_cast<uint64_t>(config.seed) : std::random_device()();
  TALON_ASSIGN_OR_RETURN(params.logit_bias, ParseLogitBias(config.logit_bias));
  TALON_ASSIGN_OR_RETURN(params.bad_words, ParseBadWords(config.bad_words, tokenizer));
  return params;
}

int KvTokensFor(const LoadedModel& model, int64_t length) {
  const int64_t context = model.target->config().max_context;
  return model.engine_options.PoolTokens(static_cast<int>(std::min(length, context)));
}

int DefaultKvTokens(const LoadedModel& model, int sequences) {
  constexpr int64_t kPoolBytes = int64_t{1} << 30;
  const ModelConfig& target = model.target->config();
  const EngineOptions& options = model.engine_options;
  const int64_t context =
      KvTokensFor(model, options.max_length > 0 ? options.max_length : target.max_context);
  const KvShape shape{.num_layers = target.num_layers,
                      .kv_heads = model.target->kv_heads(),
                      .head_dim = target.head_dim,
                      .block_size = options.block_size,
                      .dtype = options.kv_dtype};
  const int64_t affordable = kPoolBytes / static_cast<int64_t>(shape.BytesPerToken());
  const int64_t useful = context * sequences;
  return static_cast<int>(
      std::min<int64_t>({std::max(affordable, context), useful, int64_t{1} << 30}));
}

int64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace talon
