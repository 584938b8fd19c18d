#include "apps/doctor/probe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "apps/common/run_report.h"
#include "base/json.h"
#include "setup/progress.h"

namespace talon {
namespace {

constexpr int kModes = 3;  // plain, fixed, adaptive
constexpr int kWarmUpTokens = 8;
constexpr int kContextTokens = 8192;  // to be read at each length, to keep the wait short

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::array<Engine*, kModes> EnginesOf(const ProbeEngines& engines) {
  return {engines.plain.get(), engines.fixed.get(), engines.adaptive.get()};
}

Result<GenerateResult> Generate(Engine* engine, std::vector<int32_t> prompt,
                                const SamplingParams& sampling) {
  TALON_ASSIGN_OR_RETURN(GenerateResult result,
                         engine->Generate({.prompt = std::move(prompt), .sampling = sampling}));
  if (result.finish == FinishReason::kError) return result.error;
  return result;
}

// What the ways did at one length.
struct Sums {
  std::array<RequestStats, kModes> stats;
  bool identical = true;
  int64_t tokens = 0;   // tokens of plain decoding
  int64_t covered = 0;  // part of `tokens`
};

// One text, decoded in all ways. The order rotates, so that none always runs first.
Status Compare(const std::array<Engine*, kModes>& engines, const std::vector<int32_t>& prompt,
               const SamplingParams& sampling, const std::vector<bool>& covered, int turn,
               Sums* sums) {
  std::array<std::vector<int32_t>, kModes> tokens;
  for (int i = 0; i < kModes; ++i) {
    const int mode = (i + turn) % kModes;
    TALON_ASSIGN_OR_RETURN(const GenerateResult result, Generate(engines[mode], prompt, sampling));
    AddStats(result.stats, &sums->stats[mode]);
    tokens[mode] = result.TokenIds();
  }
  sums->identical = sums->identical && tokens[0] == tokens[1] && tokens[0] == tokens[2];
  sums->tokens += static_cast<int64_t>(tokens[0].size());
  for (const int32_t id : tokens[0]) sums->covered += covered[id] ? 1 : 0;
  return OkStatus();
}

ContextFigures Summarize(const Sums& sums, const VerifyCurve& curve, int context) {
  const RequestStats& plain = sums.stats[0];
  return {
      .context = context,
      .plain_tokens_per_second = Share(static_cast<double>(plain.emitted), plain.decode_seconds),
      .fixed = FiguresOf(sums.stats[1], plain, curve, context),
      .adaptive = FiguresOf(sums.stats[2], plain, curve, context),
      .identical = sums.identical,
      .fixed_stats = sums.stats[1]};
}

Json ModeJson(const ModeFigures& mode) {
  return {{"tau", mode.tau},
          {"nodes", mode.nodes},
          {"verify_cost", mode.verify_cost},
          {"verify_ratio_in_run", mode.verify_ratio},
          {"draft_cost", mode.draft_cost},
          {"draft_share", mode.draft_share},
          {"predicted_speed_up", mode.predicted},
          {"measured_speed_up", mode.measured},
          {"tokens_per_second", mode.tokens_per_second}};
}

Json DepthsJson(const RequestStats& stats) {
  Json depths = Json::array();
  for (int d = 0; d < RequestStats::kMaxDepth && stats.tried_at_depth[d] > 0; ++d) {
    depths.push_back(
        {{"tried", stats.tried_at_depth[d]}, {"accepted", stats.accepted_at_depth[d]}});
  }
  return depths;
}

}  // namespace

ModeFigures FiguresOf(const RequestStats& mode, const RequestStats& plain, const VerifyCurve& curve,
                      int context) {
  const auto passes = static_cast<double>(std::max<int64_t>(mode.passes, 1));
  const double plain_step = Share(plain.decode_seconds, static_cast<double>(plain.passes));
  const double plain_token = Share(plain.decode_seconds, static_cast<double>(plain.emitted));
  ModeFigures figures{.tau = mode.tau(),
                      .nodes = 1 + static_cast<double>(mode.drafted) / passes,
                      .draft_cost = Share(mode.draft_seconds / passes, plain_step),
                      .draft_share = Share(mode.draft_seconds, mode.decode_seconds)};
  figures.verify_cost = curve.Ratio({.context = context}, figures.nodes);
  figures.verify_ratio = Share(mode.verify_seconds / passes,
                               Share(plain.verify_seconds, static_cast<double>(plain.passes)));
  figures.predicted = figures.tau / (figures.verify_cost + figures.draft_cost);
  figures.tokens_per_second = Share(static_cast<double>(mode.emitted), mode.decode_seconds);
  figures.measured = figures.tokens_per_second * plain_token;
  return figures;
}

bool ProbeFigures::identical() const {
  return std::ranges::all_of(contexts, [](const ContextFigures& one) { return one.identical; });
}

Result<std::vector<int>> FitContexts(std::vector<int> contexts, int max_length, int max_tokens) {
  const int longest = max_length - max_tokens - 1;
  if (longest < 2) {
    return InvalidArgument("max_tokens: {}, sequences are limited to {} tokens", max_tokens,
                           max_length);
  }
  if (contexts.empty()) return InvalidArgument("contexts: none given");
  for (int& context : contexts) context = std::min(context, longest);
  std::ranges::sort(contexts);
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  return contexts;
}

Result<ProbeEngines> MakeProbeEngines(LoadedModel* model, const Config& config,
                                      const std::string& kind, const std::vector<int>& contexts) {
  EngineOptions& options = model->engine_options;
  options.max_sequences = 1;
  options.kv_tokens =
      std::min(contexts.back() + config.sampling.max_tokens + 1 + options.MaxTreeRows(),
               model->target->config().max_context);
  const StatusLine progress;
  progress.Show("timing passes and loading the draft");
  TALON_ASSIGN_OR_RETURN(const DrafterList drafters, DrafterList::Parse(kind));
  ProbeEngines engines;
  Config settings = config;
  TALON_ASSIGN_OR_RETURN(engines.plain, MakeEngine(model, settings, DrafterList()));
  settings.speculative.adaptive = true;  // measures the verify curve, too
  TALON_ASSIGN_OR_RETURN(engines.adaptive, MakeEngine(model, settings, drafters));
  settings.speculative.adaptive = false;
  TALON_ASSIGN_OR_RETURN(engines.fixed, MakeEngine(model, settings, drafters));
  return engines;
}

Result<ProbeFigures> RunProbe(const LoadedModel& model, const Config& config,
                              const ProbeOptions& options, const ProbeText& text,
                              const std::vector<bool>& covered, ProbeEngines* engines) {
  const StatusLine progress;
  ProbeFigures figures{
      .text = text.origin,
      .random_text = text.random,
      .texts = std::min<int>(options.texts, static_cast<int>(text.documents.size())),
      .curve = model.curve,
      .may_differ = model.engine_options.step.accept == AcceptMode::kRejection};
  TALON_ASSIGN_OR_RETURN(const SamplingParams sampling,
                         MakeSamplingParams(config.sampling, model.tokenizer.get()));
  const auto all = EnginesOf(*engines);
  SamplingParams warm_up;
  warm_up.max_tokens = kWarmUpTokens;
  for (Engine* engine : all) {
    TALON_RETURN_IF_ERROR(Generate(engine, text.Context(0, 32), warm_up).status());
  }
  int64_t tokens = 0, named = 0;
  for (const int context : options.contexts) {
    Sums sums;
    const int texts = std::clamp(kContextTokens / context, 1, figures.texts);
    for (int run = 0; run < texts * options.repeats; ++run) {
      const int document = run % texts;
      progress.Show(
          fmt::format("probe: {} tokens of context, text {} of {}", context, document + 1, texts));
      TALON_RETURN_IF_ERROR(
          Compare(all, text.Context(document, context), sampling, covered, run, &sums));
    }
    figures.contexts.push_back(Summarize(sums, model.curve, context));
    AddStats(sums.stats[1], &figures.fixed_stats);
    figures.may_differ = figures.may_differ || sums.stats[1].lossy || sums.stats[2].lossy;
    tokens += sums.tokens;
    named += sums.covered;
  }
  if (tokens > 0) figures.coverage = static_cast<double>(named) / static_cast<double>(tokens);
  for (const auto& [key, count] : engines->fixed->metrics().Snapshot()) {
    if (key.first == CounterName(Counter::kSpecFallback)) figures.fallbacks[key.second] = count;
  }
  return figures;
}

Json ProbeJson(const ProbeFigures& figures) {
  Json contexts = Json::array(), curve = Json::array();
  for (const ContextFigures& one : figures.contexts) {
    contexts.push_back({{"context", one.context},
                        {"plain_tokens_per_second", one.plain_tokens_per_second},
                        {"fixed", ModeJson(one.fixed)},
                        {"adaptive", ModeJson(one.adaptive)},
                        {"by_depth", DepthsJson(one.fixed_stats)},
                        {"identical", one.identical}});
    for (const VerifyCurve::Point& point : figures.curve.points()) {
      curve.push_back({{"nodes", point.rows},
                       {"context", one.context},
                       {"c", figures.curve.Ratio({.context = one.context}, point.rows)}});
    }
  }
  return {{"text", figures.text},           {"texts", figures.texts},
          {"contexts", contexts},           {"by_depth", DepthsJson(figures.fixed_stats)},
          {"coverage", figures.coverage},   {"verify_curve", curve},
          {"fallbacks", figures.fallbacks}, {"identical", figures.identical()}};
}

}  // namespace talon
