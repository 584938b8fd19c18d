// `talon bench agreement`: how often partial passes choose what full ones choose, by selector,
// budget and distance from the last full pass.
#include <algorithm>
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/bench/specpv/forced_text.h"
#include "apps/common/table.h"
#include "apps/doctor/text.h"
#include "apps/run_remote.h"
#include "base/json.h"
#include "setup/engine_settings.h"
#include "setup/loader.h"
#include "setup/progress.h"

namespace talon {
namespace {

constexpr int kTrunk = 32;  // tokens that the last column is about

struct AgreementOptions {
  std::vector<int> contexts = {8192};
  std::vector<int> budgets = {512, 1024, 2048, 4096};
  std::vector<std::string> selectors = {"attention", "quest", "h2o", "streaming"};
  std::string prompts;
  int prompts_per_context = 4;
  int tokens = 256;
  int refresh = 64;
  std::string json;
};

// One selector and budget.
struct AgreementRow {
  std::string selector;
  int budget = 0;
  AgreementByDistance agreement;
};

class AgreementBench {
 public:
  AgreementBench(LoadedModel* model, const Config& config, const AgreementOptions& options)
      : model_(model), config_(config), options_(options) {
    for (const std::string& selector : options.selectors) {
      for (const int budget : options.budgets) rows_.push_back({selector, budget});
    }
  }

  // Every selector and budget on one prompt.
  Status AddPrompt(const std::vector<int32_t>& prompt);
  const std::vector<AgreementRow>& rows() const { return rows_; }

 private:
  Result<std::unique_ptr<Engine>> NewEngine(const std::string& selector, int prompt_tokens);
  Result<GenerateResult> Generate(Engine* engine, GenerateRequest request);
  GenerateRequest RequestOf(const std::vector<int32_t>& prompt) const;

  LoadedModel* model_;
  const Config& config_;
  const AgreementOptions& options_;
  ForcedText* forced_ = nullptr;  // the request under way
  std::vector<AgreementRow> rows_;
};

Result<std::unique_ptr<Engine>> AgreementBench::NewEngine(const std::string& selector,
                                                          int prompt_tokens) {
  TALON_ASSIGN_OR_RETURN(SpecPvConfig specpv, MakeSpecPvConfig(config_));
  TALON_ASSIGN_OR_RETURN(specpv.selector, ParseSpecPvSelector(selector));
  EngineOptions& engine = model_->engine_options;
  specpv.enabled = true;
  specpv.mode = SpecPvMode::kFast;
  specpv.full_refresh_interval = options_.refresh;
  const DraftBudget& tree = engine.step.budget;
  specpv.buffer_tokens = options_.refresh + tree.max_nodes + tree.max_depth + 1;
  specpv.partial_threshold = 0;
  engine.step.specpv = specpv;
  engine.step.edit_choices = [this](const TokenTree& tree, int /*trunk*/,
                                    std::span<int32_t> choices) {
    if (forced_ != nullptr) forced_->Edit(tree, choices);
  };
  engine.prefix_cache = true;  // a prompt is computed once for each selector
  engine.max_length = std::min(prompt_tokens + options_.tokens + 2 * engine.block_size,
                               model_->target->config().max_context);
  engine.kv_tokens = KvTokensFor(*model_, engine.max_length);
  return MakeEngine(model_, config_, model_->drafters);
}

GenerateRequest AgreementBench::RequestOf(const std::vector<int32_t>& prompt) const {
  GenerateRequest request{.prompt = prompt};
  request.sampling.max_tokens = options_.tokens;
  request.sampling.ignore_eos = true;
  return request;
}

Result<GenerateResult> AgreementBench::Generate(Engine* engine, GenerateRequest request) {
  TALON_ASSIGN_OR_RETURN(GenerateResult result, engine->Generate(std::move(request)));
  if (result.finish == FinishReason::kError) return result.error;
  return result;
}

Status AgreementBench::AddPrompt(const std::vector<int32_t>& prompt) {
  std::vector<int32_t> text;
  std::unique_ptr<Engine> engine;
  for (AgreementRow& row : rows_) {
    if (&row == rows_.data() || row.selector != (&row)[-1].selector) {
      engine.reset();  // before the next one takes its memory
      TALON_ASSIGN_OR_RETURN(engine, NewEngine(row.selector, static_cast<int>(prompt.size())));
      GenerateRequest plain = RequestOf(prompt);
      plain.speculate = false;
      plain.specpv.off = true;
      if (!text.empty()) plain.sampling.max_tokens = 1;  // it only fills the prefix cache
      TALON_ASSIGN_OR_RETURN(const GenerateResult result, Generate(engine.get(), std::move(plain)));
      if (text.empty()) text = result.TokenIds();
    }
    ForcedText forced(text);
    GenerateRequest request = RequestOf(prompt);
    request.specpv.budget_tokens = row.budget;
    request.watched = true;
    request.on_update = [&](const RequestUpdate& update) { forced.Update(update); };
    forced_ = &forced;
    const auto result = Generate(engine.get(), std::move(request));
    forced_ = nullptr;
    TALON_RETURN_IF_ERROR(result.status());
    if (forced.full_disagreed() > 0) {
      return Internal("agreement: {} tokens of full passes are not those of plain decoding",
                      forced.full_disagreed());
    }
    row.agreement.Merge(forced.partial());
  }
  return OkStatus();
}

double ShareAt(const AgreementByDistance& agreement, int bucket) {
  const auto checked = static_cast<double>(agreement.checked(bucket));
  return 1 - static_cast<double>(agreement.disagreed(bucket)) / checked;
}

// Tokens of a trunk that a full pass is expected to confirm: those before the first disagreement.
double ExpectedOfTrunk(const AgreementByDistance& agreement) {
  double expected = 0;
  double kept = 1;
  for (int distance = 1; distance <= kTrunk; ++distance) {
    const int bucket = AgreementByDistance::BucketOf(distance);
    if (agreement.checked(bucket) > 0) kept *= ShareAt(agreement, bucket);
    expected += kept;
  }
  return expected;
}

Json RowJson(const AgreementRow& row) {
  Json distances = Json::array();
  for (int i = 0; i < AgreementByDistance::kBuckets; ++i) {
    if (row.agreement.checked(i) == 0) continue;
    distances.push_back({{"distance", AgreementByDistance::FirstDistance(i)},
                         {"checked", row.agreement.checked(i)},
                         {"disagreed", row.agreement.disagreed(i)}});
  }
  return {{"selector", row.selector},
          {"budget", row.budget},
          {"checked", row.agreement.TotalChecked()},
          {"disagreed", row.agreement.TotalDisagreed()},
          {"confirmed_of_trunk", ExpectedOfTrunk(row.agreement)},
          {"distances", distances}};
}

std::string ReportOf(const std::vector<AgreementRow>& rows) {
  std::vector<std::string> header = {"selector", "budget"};
  int buckets = 0;
  for (int i = 0; i < AgreementByDistance::kBuckets; ++i) {
    if (rows[0].agreement.checked(i) > 0) buckets = i + 1;
  }
  for (int i = 0; i < buckets; ++i) {
    header.push_back(std::to_string(AgreementByDistance::FirstDistance(i)));
  }
  header.insert(header.end(), {"all", "checked", fmt::format("of {}", kTrunk)});
  Table table(header);
  const auto percent = [](double share) { return fmt::format("{:.1f}", 100 * share); };
  for (const AgreementRow& row : rows) {
    const AgreementByDistance& agreement = row.agreement;
    std::vector<std::string> cells = {row.selector, std::to_string(row.budget)};
    for (int i = 0; i < buckets; ++i) {
      cells.push_back(agreement.checked(i) > 0 ? percent(ShareAt(agreement, i)) : "-");
    }
    const auto checked = static_cast<double>(std::max<int64_t>(agreement.TotalChecked(), 1));
    cells.push_back(percent(1 - static_cast<double>(agreement.TotalDisagreed()) / checked));
    cells.push_back(std::to_string(agreement.TotalChecked()));
    cells.push_back(fmt::format("{:.1f}", ExpectedOfTrunk(agreement)));
    table.Add(cells);
  }
  return table.ToString();
}

Result<int> BenchAgreement(Config config, const AgreementOptions& options) {
  config.max_sequences = 1;
  config.speculative.adaptive = false;  // always the same trees
  config.speculative.specpv.values.enabled = true;
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config));
  std::string path = options.prompts;
  if (path.empty()) {
    TALON_ASSIGN_OR_RETURN(path, BundledFile("tests/data/prompts/books.jsonl"));
  }
  TALON_ASSIGN_OR_RETURN(ProbeText text, MakeProbeText(model.get(), config, path, 0));
  std::ranges::stable_sort(text.documents, std::ranges::greater(),
                           [](const auto& document) { return document.size(); });
  Json contexts = Json::array();
  const StatusLine progress;
  for (const int context : options.contexts) {
    if (context + options.tokens > model->target->config().max_context) {
      return InvalidArgument("contexts: {} + {} new tokens, the model's context is {}", context,
                             options.tokens, model->target->config().max_context);
    }
    AgreementBench bench(model.get(), config, options);
    for (int i = 0; i < options.prompts_per_context; ++i) {
      progress.Show(
          fmt::format("{} tokens, prompt {} of {}", context, i + 1, options.prompts_per_context));
      const int document = i % static_cast<int>(text.documents.size());
      TALON_RETURN_IF_ERROR(bench.AddPrompt(text.Context(document, context)));
    }
    Json rows = Json::array();
    for (const AgreementRow& row : bench.rows()) rows.push_back(RowJson(row));
    contexts.push_back({{"context", context}, {"rows", rows}});
    std::printf("%d tokens: agreement with full passes, in %%, by distance from the last one\n%s",
                context, ReportOf(bench.rows()).c_str());
    std::fflush(stdout);
  }
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"model", model->name},
                                                {"prompts", text.origin},
                                                {"drafter", model->drafters.Name()},
                                                {"tokens", options.tokens},
                                                {"refresh", options.refresh},
                                                {"trunk", kTrunk},
                                                {"contexts", contexts}}));
  return kExitOk;
}

constexpr const char* kAgreementHelp =
    "\nThe model writes plain decoding's text, token by token: whatever a partial pass\n"
    "chooses is compared with it and replaced by it. So all selectors and budgets are\n"
    "judged after the same tokens. Full passes come after --refresh partial steps.\n"
    "The last column is how many of 32 provisional tokens a full pass is expected to\n"
    "confirm, those before the first that differs.\n"
    "\n  talon bench agreement --contexts 8192,30000 --prompts books.jsonl\n";

}  // namespace

void AddBenchAgreement(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<AgreementOptions>();
  Command command =
      bench.AddSubcommand("agreement", "How often partial passes choose what full ones choose");
  command.AddOption("--contexts", &options->contexts, "Tokens of the prompts (8192)")
      .Delimiter(',')
      .Range(16, 1 << 24)
      .TypeName("N,...");
  command
      .AddOption("--budgets", &options->budgets,
                 "Tokens that partial passes retrieve (512,1024,2048,4096)")
      .Delimiter(',')
      .Range(16, 1 << 24)
      .TypeName("N,...");
  command
      .AddOption("--selectors", &options->selectors,
                 "As for --specpv-selector (attention,quest,h2o,streaming)")
      .Delimiter(',')
      .TypeName("NAME,...");
  command
      .AddOption("--prompts", &options->prompts,
                 "Texts to cut prompts from, as for longcontext; none = the bundled books")
      .TypeName("FILE");
  command
      .AddOption("--prompts-per-context", &options->prompts_per_context,
                 "Different prompts of each length")
      .Default(options->prompts_per_context)
      .Range(1, 1000);
  command.AddOption("--tokens", &options->tokens, "Tokens that are written after each prompt")
      .Default(options->tokens)
      .Range(2, 1 << 16);
  command.AddOption("--refresh", &options->refresh, "Partial steps between full passes")
      .Default(options->refresh)
      .Range(1, 1024);
  command.AddOption("--json", &options->json, "Also write the figures to this file")
      .TypeName("FILE");
  AddSettings(command, config, kModelSettings | kSpeculativeSettings);
  command.SetFooter(kAgreementHelp);
  SetBody(command, body, [config, options] { return BenchAgreement(*config, *options); });
}

}  // namespace talon
