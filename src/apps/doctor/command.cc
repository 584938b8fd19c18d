// `talon doctor`: does this draft fit this model, what does it gain, and what limits it.
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/commands.h"
#include "apps/common/table.h"
#include "apps/doctor/advice.h"
#include "apps/doctor/alternatives.h"
#include "apps/doctor/checks.h"
#include "apps/doctor/probe.h"
#include "apps/doctor/report.h"
#include "apps/doctor/text.h"
#include "apps/run_remote.h"
#include "base/json.h"
#include "model/heads/draft_kind.h"
#include "setup/device.h"
#include "setup/draft_choice.h"
#include "setup/engine_settings.h"
#include "setup/loader.h"
#include "setup/wrap_text.h"

namespace talon {
namespace {

constexpr int kMaxTokens = 96;      // unless the user says otherwise
constexpr double kMuchBelow = 0.8;  // share of what the draft's card claims

struct DoctorOptions {
  std::string draft;
  std::string prompts;
  ProbeOptions probe;
  double claimed = 0;
  std::string json;
};

// The draft's directory and its kind, which the algorithm may only repeat.
Status FillDraft(Config* config, const DoctorOptions& options, std::string* kind) {
  SpeculativeConfig& speculative = config->speculative;
  if (!options.draft.empty()) speculative.draft_model_path = options.draft;
  if (speculative.draft_model_path.empty() && !config->model.empty()) {
    speculative.draft_model_path = HeadBeside(config->model, config->device);
    if (speculative.draft_model_path.empty()) {
      return InvalidArgument("--draft DIR is missing: a head or a small model");
    }
  }
  DrafterList method;  // none: whatever the draft is
  if (!IsAutoMethod(speculative.method)) {
    TALON_ASSIGN_OR_RETURN(method, DrafterList::Parse(speculative.method));
  }
  if (speculative.draft_model_path.empty()) {
    TALON_ASSIGN_OR_RETURN(speculative.draft_model_path,
                           BundledModelDir(BundledDraftModel(method)));
  }
  TALON_ASSIGN_OR_RETURN(const DraftKind draft, DraftKindOf(speculative.draft_model_path));
  *kind = DrafterKindName(DrafterFor(draft));
  if (!method.none() && method.Name() != *kind) {
    return InvalidArgument("--speculative-algorithm {}: {} is a draft for {}", method.Name(),
                           speculative.draft_model_path, *kind);
  }
  speculative.method = *kind;
  return OkStatus();
}

// The directory's name, shortened so that a heading fits its line.
std::string ShortName(const std::string& path) {
  constexpr size_t kWidth = 68;
  return path.size() <= kWidth ? path : fmt::format("...{}", path.substr(path.size() - kWidth + 3));
}

void PrintHead(const LoadedModel& model, const DraftFacts& facts) {
  Table table({});
  table.Add({"model", ShortName(model.name)});
  table.Add({"draft", ShortName(facts.dir)});
  table.Add({"kind", fmt::format("{}, {}", facts.kind,
                                 facts.kind == "STANDALONE" ? "a model of its own"
                                                            : "a head on the model's features")});
  table.Add({"device", ShortName(model.backend->info().description)});
  table.Add({"build has", ShortName(BuildDevices())});
  std::printf("%s\n", table.ToString(/*all_left=*/true).c_str());
}

void PrintProbe(const ProbeFigures& figures, const Config& config) {
  const std::string about = fmt::format(
      "Probe: {} tokens after up to {} contexts of each length, {}. Text: {}. The columns up to "
      "measured are the fixed tree's, adaptive is the policy's speed-up.",
      config.sampling.max_tokens, figures.texts,
      config.sampling.temperature > 0
          ? fmt::format("temperature {:.2g}", config.sampling.temperature)
          : "greedy",
      figures.text);
  std::printf("\n%s\n\n%s\n", WrapText(about, 80).c_str(), ProbeTables(figures).c_str());
}

Result<int> Doctor(Config config, DoctorOptions options) {
  std::string kind;
  TALON_RETURN_IF_ERROR(FillDraft(&config, options, &kind));
  if (config.sampling.seed < 0) config.sampling.seed = 1;  // all ways must draw alike
  Config loading = config;
  loading.enable_prefix_cache = false;  // documents are run again and again
  loading.max_sequences = std::max(config.max_sequences, kSampledDocuments);
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(loading));
  TALON_ASSIGN_OR_RETURN(const DraftFacts facts,
                         ExamineDraft(*model, config, kind, config.speculative.draft_model_path));
  std::vector<int>& contexts = options.probe.contexts;
  TALON_ASSIGN_OR_RETURN(contexts,
                         FitContexts(contexts, facts.max_length, config.sampling.max_tokens));
  TALON_ASSIGN_OR_RETURN(const ProbeText text,
                         MakeProbeText(model.get(), config, options.prompts, contexts.back()));
  TALON_ASSIGN_OR_RETURN(ProbeEngines engines,
                         MakeProbeEngines(model.get(), config, kind, contexts));
  const DraftBudget budget = engines.fixed->options().step.budget;
  std::vector<CheckLine> checks = CheckDraft(facts, config, budget);
  PrintHead(*model, facts);
  std::printf("%s", ChecklistText(checks).c_str());
  std::fflush(stdout);

  TALON_ASSIGN_OR_RETURN(const ProbeFigures figures,
                         RunProbe(*model, config, options.probe, text, facts.covered, &engines));
  const std::vector<CheckLine> seen = CheckProbe(figures);
  const Advice advice = Advise(figures, {.kind = kind,
                                         .budget = budget,
                                         .draft_vocab = facts.draft_vocab,
                                         .window = config.speculative.draft_window_size,
                                         .draft_weights = config.speculative.draft_weights});
  PrintProbe(figures, config);
  std::printf("%s\n%s", ChecklistText(seen).c_str(), AdviceText(advice).c_str());
  checks.insert(checks.end(), seen.begin(), seen.end());
  std::vector<AlternativeFigures> others;
  if (figures.fixed_stats.tau() < kMuchBelow * options.claimed) {
    engines = {};
    TALON_ASSIGN_OR_RETURN(others, TryAlternatives(model.get(), config, facts, text));
    std::printf("\n%s", AlternativesText(others, options.claimed).c_str());
  }
  const Json json = {
      {"model", model->name},
      {"device", model->backend->info().description},
      {"build_devices", BuildDevices()},
      {"max_tokens", config.sampling.max_tokens},
      {"draft", FactsJson(facts, checks)},
      {"probe", ProbeJson(figures)},
      {"alternatives", AlternativesJson(others)},
      {"advice", {{"limit", advice.limit}, {"limits", advice.limits}, {"next", advice.next}}}};
  TALON_RETURN_IF_ERROR(SaveJson(options.json, json));
  return figures.identical() || figures.may_differ ? kExitOk : kExitFailed;
}

}  // namespace

void AddDoctorCommand(Command app, Config* config, CommandBody* body) {
  auto options = std::make_shared<DoctorOptions>();
  Command command = app.AddSubcommand(
      "doctor", "Check a draft against its model: fit, speed-up, and what limits it");
  command
      .AddOption("--draft", &options->draft,
                 "A head or a small model; none = the head that belongs to the model by its place")
      .TypeName("DIR");
  command
      .AddOption("--prompts", &options->prompts,
                 "Text of the probe: JSON lines with \"prompt\"; none = the model's own text")
      .TypeName("FILE");
  command
      .AddOption("--contexts", &options->probe.contexts,
                 "Lengths of context to try (default 128,1024,4096)")
      .Delimiter(',')
      .Range(2, 1 << 24)
      .TypeName("N,...");
  command.AddOption("--texts", &options->probe.texts, "Texts at each length")
      .Default(options->probe.texts)
      .Range(1, 1000)
      .TypeName("N");
  command.AddOption("--repeats", &options->probe.repeats, "Runs of each text")
      .Default(options->probe.repeats)
      .Range(1, 1000)
      .TypeName("N");
  command
      .AddOption("--claimed", &options->claimed,
                 "Tokens per pass that the draft's card claims: where the probe has less than 0.8 "
                 "of it, other readings of the head (rope, captured layers, norms) are tried")
      .Range(1.0, 100.0)
      .TypeName("TAU");
  command.AddOption("--json", &options->json, "Also write the figures to this file")
      .TypeName("FILE");
  AddSettings(command, config, kModelSettings | kSamplingSettings | kSpeculativeSettings);
  Option max_tokens = command.Find("--max-tokens");
  max_tokens.DefaultText(std::to_string(kMaxTokens));
  command.SetFooter(
      "\nSpeculative decoding runs beside plain decoding, text by text. Exit code 0 if\n"
      "the draft loads and the text is the same, 2 if it does not load.\n"
      "  talon doctor\n"
      "  talon doctor --model DIR --draft DIR --prompts mine.jsonl --json figures.json\n");
  SetBody(command, body, [config, options, command, max_tokens] {
    const bool from_file = command.Count("--config") > 0;
    if (max_tokens.count() == 0 && !from_file) config->sampling.max_tokens = kMaxTokens;
    // The checklist says what the loader would warn of, once.
    if (config->log_level == "auto") config->log_level = "error";
    return Doctor(*config, *options);
  });
}

}  // namespace talon
