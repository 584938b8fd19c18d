// `talon bench decode --modes ...`: ways of decoding the same prompts, interleaved in one run.
#include <algorithm>
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/bench/stages.h"
#include "apps/common/prompts.h"
#include "apps/common/run_report.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/json.h"
#include "engine/grammar_compiler.h"
#include "setup/loader.h"
#include "setup/progress.h"

namespace talon {
namespace {

// What one mode did over all prompts and repeats.
struct ModeResult {
  std::string mode;
  DrafterList drafter;
  std::unique_ptr<Engine> engine;
  std::vector<double> seconds;                      // time of each repeat, all prompts
  std::vector<std::vector<double>> prompt_seconds;  // [prompts][repeats]
  int64_t tokens = 0;                               // emitted in one repeat
  RequestStats stats;                               // summed over everything
  int64_t bytes_written = 0;
  int64_t grammar_tokens = 0;  // in answers that must match a schema, and those with no choice
  int64_t forced_tokens = 0;
  // Against plain decoding: tokens before the first difference, and all.
  int64_t same_tokens = 0;
  int64_t compared_tokens = 0;
  bool identical() const { return same_tokens == compared_tokens; }
};

void CompareTokens(const std::vector<int32_t>& tokens, const std::vector<int32_t>& plain,
                   ModeResult* mode) {
  const auto differ = std::mismatch(tokens.begin(), tokens.end(), plain.begin(), plain.end());
  mode->same_tokens += differ.first - tokens.begin();
  mode->compared_tokens += static_cast<int64_t>(std::max(tokens.size(), plain.size()));
}

Result<GenerateRequest> RequestFor(const Prompt& prompt, const Config& config,
                                   const LoadedModel& model, const GrammarCompiler& grammars) {
  GenerateRequest request;
  request.prompt = prompt.tokens;
  request.stop = config.sampling.stop;
  TALON_ASSIGN_OR_RETURN(request.sampling,
                         MakeSamplingParams(config.sampling, model.tokenizer.get()));
  if (!prompt.json_schema.empty()) {
    auto matcher =
        grammars.Compile({.kind = GrammarSpec::Kind::kJsonSchema, .source = prompt.json_schema});
    if (!matcher.ok())
      return matcher.status().WithContext(fmt::format("prompt {}: json_schema", prompt.id));
    request.sampling.grammar = std::move(*matcher);
  }
  return request;
}

// One repeat: fresh engines, so nothing is learnt from an earlier run of the same prompts.
Status RunRepeat(LoadedModel* model, const Config& config, const std::vector<Prompt>& prompts,
                 const GrammarCompiler& grammars, int repeat, std::vector<ModeResult>* modes) {
  const StatusLine progress;
  for (ModeResult& mode : *modes) {
    mode.engine.reset();
    TALON_ASSIGN_OR_RETURN(mode.engine, MakeEngine(model, config, mode.drafter));
    mode.seconds.push_back(0);
    mode.tokens = 0;
  }
  for (size_t p = 0; p < prompts.size(); ++p) {
    progress.Show(fmt::format("repeat {}, prompt {} of {}", repeat + 1, p + 1, prompts.size()));
    std::vector<std::vector<int32_t>> answers(modes->size());
    for (size_t i = 0; i < modes->size(); ++i) {
      // Rotated, so that no mode always runs first.
      const size_t m = (i + repeat) % modes->size();
      ModeResult& mode = (*modes)[m];
      TALON_ASSIGN_OR_RETURN(GenerateRequest request,
                             RequestFor(prompts[p], config, *model, grammars));
      auto result = mode.engine->Generate(std::move(request));
      if (!result.ok()) return result.status().WithContext(prompts[p].id);
      if (result->finish == FinishReason::kError) return result->error;
      mode.seconds.back() += result->stats.decode_seconds;
      mode.prompt_seconds.resize(prompts.size());
      mode.prompt_seconds[p].push_back(result->stats.decode_seconds);
      mode.tokens += static_cast<int64_t>(result->tokens.size());
      AddStats(result->stats, &mode.stats);
      answers[m] = result->TokenIds();
    }
    for (size_t m = 0; m < modes->size(); ++m) {
      CompareTokens(answers[m], answers[0], &(*modes)[m]);
    }
  }
  for (ModeResult& mode : *modes) {
    const Metrics& metrics = mode.engine->metrics();
    mode.bytes_written += metrics.Total(Counter::kKvBytesWritten);
    mode.grammar_tokens += metrics.Total(Counter::kGrammarTokens);
    mode.forced_tokens += metrics.Get(Counter::kGrammarTokens, "forced");
  }
  return OkStatus();
}

Json DepthJson(const RequestStats& stats) {
  Json shares = Json::array();
  for (int d = 0; d < RequestStats::kMaxDepth && stats.tried_at_depth[d] > 0; ++d) {
    shares.push_back(static_cast<double>(stats.accepted_at_depth[d]) /
                     static_cast<double>(stats.tried_at_depth[d]));
  }
  return shares;
}

double Ratio(const std::vector<double>& plain, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < plain.size(); ++i) ratios.push_back(plain[i] / other[i]);
  return Median(ratios);
}

// How the mode did on each prompt against plain decoding, by the median over repeats.
std::vector<double> PromptRatios(const ModeResult& plain, const ModeResult& mode) {
  std::vector<double> ratios;
  for (size_t p = 0; p < plain.prompt_seconds.size(); ++p) {
    ratios.push_back(Ratio(plain.prompt_seconds[p], mode.prompt_seconds[p]));
  }
  return ratios;
}

Json ModeJson(const ModeResult& plain, const ModeResult& mode, int repeats) {
  const double seconds = Median(mode.seconds);
  const std::vector<double> ratios = PromptRatios(plain, mode);
  return {{"mode", mode.mode},
          {"tokens_per_second", static_cast<double>(mode.tokens) / seconds},
          {"ratio_to_plain", Ratio(plain.seconds, mode.seconds)},
          {"prompt_ratios", ratios},
          {"worst_prompt_ratio", std::ranges::min(ratios)},
          {"tau", mode.stats.tau()},
          {"acceptance_by_depth", DepthJson(mode.stats)},
          {"drafted", mode.stats.drafted},
          {"accepted", mode.stats.accepted},
          {"draft_share", mode.stats.draft_seconds / mode.stats.decode_seconds},
          {"bytes_written", mode.bytes_written / repeats},
          {"forced_share", static_cast<double>(mode.forced_tokens) /
                               static_cast<double>(std::max<int64_t>(mode.grammar_tokens, 1))},
          {"identical", mode.identical()},
          {"same_tokens", static_cast<double>(mode.same_tokens) /
                              static_cast<double>(std::max<int64_t>(mode.compared_tokens, 1))}};
}

std::string ModeTable(const Json& modes) {
  Table table({"mode", "tokens/s", "vs plain", "worst", "tau", "drafting", "KV", "forced",
               "identical", "accepted by depth"});
  for (const Json& mode : modes) {
    std::string depths;
    for (size_t d = 0; d < mode["acceptance_by_depth"].size() && d < 5; ++d) {
      depths +=
          fmt::format("{}{:.2f}", d == 0 ? "" : " ", mode["acceptance_by_depth"][d].get<double>());
    }
    table.Add({mode["mode"].get<std::string>(),
               fmt::format("{:.0f}", mode["tokens_per_second"].get<double>()),
               fmt::format("{:.2f}x", mode["ratio_to_plain"].get<double>()),
               fmt::format("{:.2f}x", mode["worst_prompt_ratio"].get<double>()),
               fmt::format("{:.2f}", mode["tau"].get<double>()),
               fmt::format("{:.0f}%", 100 * mode["draft_share"].get<double>()),
               FormatBytes(mode["bytes_written"].get<double>()),
               fmt::format("{:.0f}%", 100 * mode["forced_share"].get<double>()),
               mode["identical"].get<bool>()
                   ? "yes"
                   : fmt::format("{:.1f}%", 100 * mode["same_tokens"].get<double>()),
               depths.empty() ? "-" : depths});
  }
  return table.ToString();
}

// Where the steps of each mode spend their time, on the first prompt.
Status AddStages(LoadedModel* model, const Config& config, const Prompt& prompt,
                 const GrammarCompiler& grammars, std::vector<ModeResult>* modes, Json* json) {
  for (size_t m = 0; m < modes->size(); ++m) {
    ModeResult& mode = (*modes)[m];
    TALON_ASSIGN_OR_RETURN(GenerateRequest request, RequestFor(prompt, config, *model, grammars));
    TALON_ASSIGN_OR_RETURN(
        const StageTimes times,
        MeasureStages(model->backend.get(), mode.engine.get(), std::move(request)));
    if (times.steps == 0) continue;  // the answer ended before the measurement began
    (*json)["modes"][m]["steps"] = times.ToJson();
    std::printf("\nA step of %s, %.0f us when it is not measured by stages\n%s", mode.mode.c_str(),
                1e6 * mode.stats.decode_seconds / static_cast<double>(mode.stats.passes),
                times.ToString().c_str());
  }
  return OkStatus();
}

}  // namespace

Result<int> BenchModes(Config config, const ModesOptions& options) {
  config.max_sequences = 1;
  config.enable_prefix_cache = false;                      // prompts are run again and again
  if (config.sampling.seed < 0) config.sampling.seed = 1;  // all modes must draw alike
  std::unique_ptr<LoadedModel> model;                      // outlives the modes' engines
  std::vector<ModeResult> modes;
  for (const std::string& name : options.modes) {
    std::string drafters = name == "plain" ? "NONE" : name;
    std::ranges::replace(drafters, '+', ',');
    TALON_ASSIGN_OR_RETURN(DrafterList drafter, DrafterList::Parse(drafters));
    modes.emplace_back();
    modes.back().mode = name;
    modes.back().drafter = std::move(drafter);
  }
  if (modes.empty() || !modes[0].drafter.none()) {
    return InvalidArgument("modes: the first must be plain, the others are compared with it");
  }
  TALON_ASSIGN_OR_RETURN(model, LoadTarget(config));
  TALON_ASSIGN_OR_RETURN(const PromptReader reader, MakePromptReader(config.serve, *model));
  TALON_ASSIGN_OR_RETURN(const auto prompts, reader.Read(options.prompts));
  const GrammarCompiler grammars(model->tokenizer.get());
  size_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.tokens.size());
  model->engine_options.kv_tokens =
      KvTokensFor(*model, static_cast<int64_t>(longest) + config.sampling.max_tokens + 1);
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    TALON_RETURN_IF_ERROR(RunRepeat(model.get(), config, prompts, grammars, repeat, &modes));
  }
  Json json = {{"model", model->name},
               {"device", model->backend->info().description},
               {"weights", config.weights},
               {"prompts", options.prompts},
               {"num_prompts", prompts.size()},
               {"max_tokens", config.sampling.max_tokens},
               {"temperature", config.sampling.temperature},
               {"repeats", options.repeats},
               {"modes", Json::array()}};
  for (const ModeResult& mode : modes) {
    json["modes"].push_back(ModeJson(modes[0], mode, options.repeats));
  }
  for (const VerifyCurve::Point& point : model->curve.points()) {
    json["verify_curve"].push_back(
        {{"nodes", point.rows}, {"c", point.base / model->curve.points()[0].base}});
  }
  std::printf("%s, weights %s, %zu prompts, %d new tokens each, %d repeats interleaved\n%s",
              model->name.c_str(), config.weights.c_str(), prompts.size(),
              config.sampling.max_tokens, options.repeats, ModeTable(json["modes"]).c_str());
  std::string curve;
  for (const VerifyCurve::Point& point : model->curve.points()) {
    curve += fmt::format(" c({})={:.2f}", point.rows, point.base / model->curve.points()[0].base);
  }
  if (!curve.empty()) std::printf("verify curve at a short context:%s\n", curve.c_str());
  TALON_RETURN_IF_ERROR(AddStages(model.get(), config, prompts[0], grammars, &modes, &json));
  TALON_RETURN_IF_ERROR(SaveJson(options.json, json));
  return kExitOk;
}

}  // namespace talon
