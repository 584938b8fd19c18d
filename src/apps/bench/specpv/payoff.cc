// `talon bench payoff`: whether exact partial verification is ever slower than the better of plain
// decoding and speculation over the whole prefix, prompt by prompt.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "apps/bench/bench.h"
#include "apps/bench/longcontext.h"
#include "apps/common/prompts.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/clock.h"
#include "base/json.h"
#include "setup/engine_settings.h"
#include "setup/loader.h"
#include "setup/progress.h"

namespace talon {
namespace {

constexpr int kWays = 3;  // plain, full, exact
constexpr int kExactWay = 2;

struct PayoffOptions {
  std::vector<std::string> prompts;
  std::vector<double> temperatures = {0, 0.7};
  int tokens = 128;
  int least_tokens = 0;
  std::string json;
};

// A step's view of the prefix and rows: steps of one kind cost the same at one length.
struct StepKind {
  bool partial = false;
  bool settles = false;  // a full pass that SpecPV asked for
  int64_t rows = 0;

  auto operator<=>(const StepKind&) const = default;
};

// One way of decoding a prompt.
struct PayoffRun {
  std::unique_ptr<Engine> engine;
  RequestId id = 0;
  bool speculate = true;
  int64_t emitted = 0;
  std::vector<std::pair<StepKind, double>> steps;  // after the prompt, with their seconds
  std::vector<int32_t> tokens;
};

// Seconds of steps by kind, over all ways.
using StepPrices = std::map<StepKind, std::vector<double>>;

// Tokens per second if each step had taken the median time of its kind, so that what disturbs
// single steps does not count. Kinds that are seen less often keep their own times.
double PricedRate(const PayoffRun& run, const StepPrices& prices) {
  constexpr size_t kEnough = 3;
  double seconds = 0;
  for (const auto& [kind, taken] : run.steps) {
    const std::vector<double>& all = prices.at(kind);
    seconds += all.size() < kEnough ? taken : Median(all);
  }
  return static_cast<double>(run.emitted) / seconds;
}

struct PayoffRow {
  std::string id;
  size_t prompt_tokens = 0;
  double temperature = 0;
  std::array<double, kWays> rates = {};
  int64_t partial_passes = 0;
  bool identical = false;

  double ratio() const { return rates[kExactWay] / std::max(rates[0], rates[1]); }
};

class PayoffBench {
 public:
  PayoffBench(LoadedModel* model, const Config& config) : model_(model), config_(config) {}

  // The prompt at each temperature, in engines of its own: what they learn begins with the prompt.
  Status AddPrompt(const Prompt& prompt, const std::vector<double>& temperatures);
  std::vector<PayoffRow>& rows() { return rows_; }

 private:
  Status Submit(const Prompt& prompt, double temperature, PayoffRun* run);
  static void Step(PayoffRun* run);

  LoadedModel* model_;
  const Config& config_;
  std::vector<PayoffRow> rows_;
};

Status PayoffBench::Submit(const Prompt& prompt, double temperature, PayoffRun* run) {
  GenerateRequest request{.prompt = prompt.tokens, .speculate = run->speculate};
  request.sampling.max_tokens = config_.sampling.max_tokens;
  request.sampling.temperature = static_cast<float>(temperature);
  request.sampling.seed = 1;
  request.sampling.ignore_eos = true;
  run->emitted = 0;
  request.on_update = [run](const RequestUpdate& update) {
    run->emitted += static_cast<int64_t>(update.tokens.size());
  };
  TALON_ASSIGN_OR_RETURN(run->id, run->engine->Submit(std::move(request)));
  // The prompt's own steps, and the first token's, are not timed.
  while (run->emitted == 0 && run->engine->HasWork()) run->engine->RunStep();
  run->emitted = 0;
  run->steps.clear();
  return OkStatus();
}

void PayoffBench::Step(PayoffRun* run) {
  const Metrics& metrics = run->engine->metrics();
  const int64_t partial = metrics.Get(Counter::kSpecVerifyPasses, "partial");
  const int64_t refreshes = metrics.Total(Counter::kSpecPvRefresh);
  const int64_t rows = metrics.Total(Counter::kNworStagedTokens);
  const Stopwatch watch;
  run->engine->RunStep();
  run->steps.emplace_back(
      StepKind{.partial = metrics.Get(Counter::kSpecVerifyPasses, "partial") > partial,
               .settles = metrics.Total(Counter::kSpecPvRefresh) > refreshes,
               .rows = metrics.Total(Counter::kNworStagedTokens) - rows},
      watch.Seconds());
}

Status PayoffBench::AddPrompt(const Prompt& prompt, const std::vector<double>& temperatures) {
  const auto length = static_cast<int>(prompt.tokens.size());
  TALON_ASSIGN_OR_RETURN(const SpecPvConfig specpv, MakeSpecPvConfig(config_));
  std::array<PayoffRun, kWays> runs;
  for (int way = 0; way < kWays; ++way) {
    Variant variant{.drafter = model_->drafters};
    if (way == kExactWay) {
      variant.partial = SpecPvMode::kExact;
      variant.budget = specpv.RetrievalTokens();
    }
    runs[way].speculate = way > 0;
    TALON_ASSIGN_OR_RETURN(runs[way].engine, MakeVariantEngine(model_, config_, variant, length));
  }
  for (const double temperature : temperatures) {
    for (PayoffRun& run : runs) {
      TALON_RETURN_IF_ERROR(Submit(prompt, temperature, &run));
    }
    // The way that is behind takes the next step, so that what disturbs the machine disturbs all.
    const auto behind = [](const PayoffRun& run) {
      return run.engine->HasWork() ? run.emitted : std::numeric_limits<int64_t>::max();
    };
    while (std::ranges::any_of(runs, [](const PayoffRun& run) { return run.engine->HasWork(); })) {
      Step(&*std::ranges::min_element(runs, {}, behind));
    }
    StepPrices prices;
    for (const PayoffRun& run : runs) {
      for (const auto& [kind, seconds] : run.steps) prices[kind].push_back(seconds);
    }
    PayoffRow row{
        .id = prompt.id, .prompt_tokens = prompt.tokens.size(), .temperature = temperature};
    for (int way = 0; way < kWays; ++way) {
      PayoffRun& run = runs[way];
      TALON_ASSIGN_OR_RETURN(const GenerateResult result, run.engine->Take(run.id));
      if (result.finish == FinishReason::kError) return result.error;
      row.rates[way] = PricedRate(run, prices);
      run.tokens = result.TokenIds();
      row.partial_passes = result.stats.partial_passes;  // the last way is exact mode
    }
    row.identical = runs[kExactWay].tokens == runs[0].tokens && runs[1].tokens == runs[0].tokens;
    rows_.push_back(row);
  }
  return OkStatus();
}

Result<int> BenchPayoff(Config config, const PayoffOptions& options) {
  if (options.prompts.empty()) return InvalidArgument("prompts: missing; try --prompts FILE");
  config.max_sequences = 1;
  config.sampling.max_tokens = options.tokens;
  config.enable_prefix_cache = true;  // a prompt is computed once for all temperatures
  config.speculative.specpv.values.enabled = true;
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config));
  TALON_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, RequireTokenizer(*model));
  const PromptReader reader{.tokenizer = tokenizer,
                            .vocab_size = model->target->config().vocab_size};
  PayoffBench bench(model.get(), config);
  const StatusLine progress;
  for (const std::string& file : options.prompts) {
    TALON_ASSIGN_OR_RETURN(const auto prompts, reader.Read(file));
    for (const Prompt& prompt : prompts) {
      if (prompt.tokens.size() < static_cast<size_t>(options.least_tokens)) continue;
      progress.Show(fmt::format("{}: {}", file, prompt.id));
      TALON_RETURN_IF_ERROR(bench.AddPrompt(prompt, options.temperatures));
    }
  }
  std::vector<PayoffRow>& rows = bench.rows();
  if (rows.empty()) return InvalidArgument("prompts: none of {} tokens", options.least_tokens);
  std::ranges::stable_sort(rows, {}, &PayoffRow::ratio);
  Table table({"prompt", "tokens", "T", "plain t/s", "full t/s", "exact t/s", "/ better", "partial",
               "same"});
  Json json = Json::array();
  bool identical = true;
  for (const PayoffRow& row : rows) {
    table.Add({row.id, std::to_string(row.prompt_tokens), fmt::format("{:.1f}", row.temperature),
               fmt::format("{:.0f}", row.rates[0]), fmt::format("{:.0f}", row.rates[1]),
               fmt::format("{:.0f}", row.rates[2]), fmt::format("{:.2f}x", row.ratio()),
               std::to_string(row.partial_passes), row.identical ? "yes" : "no"});
    json.push_back({{"prompt", row.id},
                    {"tokens", row.prompt_tokens},
                    {"temperature", row.temperature},
                    {"plain", row.rates[0]},
                    {"full", row.rates[1]},
                    {"exact", row.rates[2]},
                    {"ratio", row.ratio()},
                    {"partial_passes", row.partial_passes},
                    {"identical", row.identical}});
    identical = identical && row.identical;
  }
  std::printf("%s", table.ToString().c_str());
  TALON_RETURN_IF_ERROR(SaveJson(
      options.json, {{"model", model->name}, {"drafter", model->drafters.Name()}, {"rows", json}}));
  return identical ? kExitOk : kExitFailed;
}

constexpr const char* kPayoffHelp =
    "\nThree engines decode each prompt, a step of one after a step of another: without\n"
    "drafts, with drafts over the whole prefix, and with SpecPV's exact mode. A step\n"
    "counts as the median of all with as many rows and the same view, so that other\n"
    "work on the machine matters little. The table begins with the prompt on which\n"
    "exact mode did worst against the better of the others. Exit code 1: a text\n"
    "differs.\n"
    "\n  talon bench payoff --prompts books.jsonl,recall.jsonl --tokens 128\n";

}  // namespace

void AddBenchPayoff(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<PayoffOptions>();
  Command command =
      bench.AddSubcommand("payoff", "Whether partial verification is ever slower, by prompt");
  command.AddOption("--prompts", &options->prompts, "Files of JSON lines with \"prompt\"")
      .Delimiter(',')
      .TypeName("FILE,...");
  command.AddOption("--temperatures", &options->temperatures, "Of the draws (0,0.7)")
      .Delimiter(',')
      .Range(0.0, 100.0)
      .TypeName("X,...");
  command.AddOption("--tokens", &options->tokens, "Tokens that are written after each prompt")
      .Default(options->tokens)
      .Range(2, 1 << 16);
  command.AddOption("--least-tokens", &options->least_tokens, "Leave shorter prompts out")
      .Default(options->least_tokens)
      .Range(0, 1 << 24);
  command.AddOption("--json", &options->json, "Also write the figures to this file")
      .TypeName("FILE");
  AddSettings(command, config, kModelSettings | kSpeculativeSettings);
  command.SetFooter(kPayoffHelp);
  SetBody(command, body, [config, options] { return BenchPayoff(*config, *options); });
}

}  // namespace talon
