// `talon bench payoff`: whether exact partial verification is ever slower than the better of plain
// decoding and speculation over the whole prefix, prompt by prompt.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "apps/bench/bench.h"
#include "apps/bench/longcontext.h"
#include "apps/bench/modelled/timed_model.h"
#include "apps/common/prompts.h"
#include "apps/common/table.h"
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
  ClockOptions clock;
  std::string json;
};

// A step's view of the prefix and rows: steps of one kind cost the same at one length.
struct StepKind {
  bool partial = false;
  bool settles = false;  // a full pass that SpecPV asked for
  int64_t rows = 0;

  auto operator<=>(const StepKind&) const = default;
};

struct TimedStep {
  StepKind kind;
  double seconds = 0;
  int64_t emitted = 0;
};

// One way of decoding a prompt.
struct PayoffRun {
  std::unique_ptr<Engine> engine;
  RequestId id = 0;
  bool speculate = true;
  int64_t emitted = 0;
  std::vector<TimedStep> steps;  // after the prompt
  std::vector<int32_t> tokens;
};

// Seconds of steps by kind, over all ways.
using StepPrices = std::map<StepKind, std::vector<double>>;

// Tokens per second if each step had taken the median time of its kind, so that what disturbs
// single steps does not count. Kinds that are seen less often keep their own times, as all do
// without prices.
double PricedRate(const PayoffRun& run, const StepPrices& prices) {
  constexpr size_t kEnough = 3;
  double seconds = 0;
  for (const TimedStep& step : run.steps) {
    const auto all = prices.find(step.kind);
    const bool known = all != prices.end() && all->second.size() >= kEnough;
    seconds += known ? Median(all->second) : step.seconds;
  }
  return static_cast<double>(run.emitted) / seconds;
}

// What exact mode's partial passes came to.
struct Rounds {
  int64_t partial_passes = 0;
  int64_t settled = 0;      // rounds that a full pass has ended
  int64_t confirmed = 0;    // provisional tokens
  int64_t rolled_back = 0;  // the same
  int64_t first_token = 0;  // emitted before the first partial pass

  double Kept() const {
    return static_cast<double>(confirmed) / static_cast<double>(confirmed + rolled_back);
  }
  double Trunk() const {
    return static_cast<double>(confirmed + rolled_back) / static_cast<double>(settled);
  }
};

struct PayoffRow {
  std::string group;  // the file's name
  std::string id;
  size_t prompt_tokens = 0;
  double temperature = 0;
  std::array<double, kWays> rates = {};
  Rounds rounds;
  std::array<std::vector<TimedStep>, kWays> steps;
  bool identical = false;

  double ratio() const { return rates[kExactWay] / std::max(rates[0], rates[1]); }
};

class PayoffBench {
 public:
  PayoffBench(const TimedModel& timed, const Config& config, bool modelled)
      : model_(timed.model.get()), clock_(*timed.clock), config_(config), modelled_(modelled) {}

  // The prompt at each temperature, in engines of its own: what they learn begins with the prompt.
  Status AddPrompt(const std::string& group, const Prompt& prompt,
                   const std::vector<double>& temperatures);
  std::vector<PayoffRow>& rows() { return rows_; }

 private:
  Status Submit(const Prompt& prompt, double temperature, PayoffRun* run);
  void Step(PayoffRun* run) const;
  // What the last way, exact mode, has done since its metrics were `before`.
  static Rounds RoundsOf(const PayoffRun& exact, const Rounds& before);
  static Rounds CountersOf(const Metrics& metrics);

  LoadedModel* model_;
  const Clock& clock_;
  const Config& config_;
  bool modelled_;
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

void PayoffBench::Step(PayoffRun* run) const {
  const Metrics& metrics = run->engine->metrics();
  const int64_t partial = metrics.Get(Counter::kSpecVerifyPasses, "partial");
  const int64_t refreshes = metrics.Total(Counter::kSpecPvRefresh);
  const int64_t rows = metrics.Total(Counter::kNworStagedTokens);
  const int64_t emitted = run->emitted;
  const Stopwatch watch(clock_);
  run->engine->RunStep();
  run->steps.push_back(
      {.kind = {.partial = metrics.Get(Counter::kSpecVerifyPasses, "partial") > partial,
                .settles = metrics.Total(Counter::kSpecPvRefresh) > refreshes,
                .rows = metrics.Total(Counter::kNworStagedTokens) - rows},
       .seconds = watch.Seconds(),
       .emitted = run->emitted - emitted});
}

Rounds PayoffBench::CountersOf(const Metrics& metrics) {
  return {.confirmed = metrics.Total(Counter::kSpecPvConfirmedTokens),
          .rolled_back = metrics.Total(Counter::kSpecPvRolledBackTokens)};
}

Rounds PayoffBench::RoundsOf(const PayoffRun& exact, const Rounds& before) {
  Rounds rounds = CountersOf(exact.engine->metrics());
  rounds.confirmed -= before.confirmed;
  rounds.rolled_back -= before.rolled_back;
  bool in_round = false;
  for (const TimedStep& step : exact.steps) {
    if (rounds.partial_passes == 0 && !step.kind.partial) rounds.first_token += step.emitted;
    rounds.partial_passes += step.kind.partial ? 1 : 0;
    rounds.settled += in_round && !step.kind.partial ? 1 : 0;
    in_round = step.kind.partial;
  }
  return rounds;
}

Status PayoffBench::AddPrompt(const std::string& group, const Prompt& prompt,
                              const std::vector<double>& temperatures) {
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
    const Rounds before = CountersOf(runs[kExactWay].engine->metrics());
    // The way that is behind takes the next step, so that what disturbs the machine disturbs all.
    const auto behind = [](const PayoffRun& run) {
      return run.engine->HasWork() ? run.emitted : std::numeric_limits<int64_t>::max();
    };
    while (std::ranges::any_of(runs, [](const PayoffRun& run) { return run.engine->HasWork(); })) {
      Step(&*std::ranges::min_element(runs, {}, behind));
    }
    StepPrices prices;
    for (const PayoffRun& run : runs) {
      if (modelled_) break;
      for (const TimedStep& step : run.steps) prices[step.kind].push_back(step.seconds);
    }
    PayoffRow row{.group = group,
                  .id = prompt.id,
                  .prompt_tokens = prompt.tokens.size(),
                  .temperature = temperature};
    for (int way = 0; way < kWays; ++way) {
      PayoffRun& run = runs[way];
      TALON_ASSIGN_OR_RETURN(const GenerateResult result, run.engine->Take(run.id));
      if (result.finish == FinishReason::kError) return result.error;
      row.rates[way] = PricedRate(run, prices);
      run.tokens = result.TokenIds();
      row.steps[way] = run.steps;
    }
    row.rounds = RoundsOf(runs[kExactWay], before);
    row.identical = runs[kExactWay].tokens == runs[0].tokens && runs[1].tokens == runs[0].tokens;
    rows_.push_back(row);
  }
  return OkStatus();
}

void AddRow(const PayoffRow& row, Table* table) {
  const Rounds& rounds = row.rounds;
  const bool any = rounds.settled > 0;
  table->Add({row.id, std::to_string(row.prompt_tokens), fmt::format("{:.1f}", row.temperature),
              fmt::format("{:.0f}", row.rates[0]), fmt::format("{:.0f}", row.rates[1]),
              fmt::format("{:.0f}", row.rates[2]), fmt::format("{:.2f}x", row.ratio()),
              std::to_string(rounds.partial_passes), std::to_string(rounds.settled),
              any ? fmt::format("{:.1f}", rounds.Trunk()) : "-",
              any ? fmt::format("{:.0f}%", 100 * rounds.Kept()) : "-",
              any ? std::to_string(rounds.first_token) : "-", row.identical ? "yes" : "no"});
}

// Rows of the same file and temperature: the worst, the median, and how many are too slow.
std::string GroupTable(const std::vector<PayoffRow>& rows) {
  constexpr double kGoal = 0.97;
  std::map<std::pair<std::string, double>, std::vector<double>> groups;
  for (const PayoffRow& row : rows) {
    groups[{row.group, row.temperature}].push_back(row.ratio());
  }
  Table table({"prompts", "T", "runs", "worst", "median", "best", "below 0.97"});
  for (const auto& [group, ratios] : groups) {
    const auto [worst, best] = std::ranges::minmax(ratios);
    const auto below = std::ranges::count_if(ratios, [](double ratio) { return ratio < kGoal; });
    table.Add({group.first, fmt::format("{:.1f}", group.second), std::to_string(ratios.size()),
               fmt::format("{:.3f}x", worst), fmt::format("{:.3f}x", Median(ratios)),
               fmt::format("{:.3f}x", best), std::to_string(below)});
  }
  return table.ToString();
}

// What a step was, its rows, tokens that it emitted and its seconds.
Json StepsJson(const std::vector<TimedStep>& steps) {
  Json json = Json::array();
  for (const TimedStep& step : steps) {
    json.push_back({step.kind.partial   ? "partial"
                    : step.kind.settles ? "settling"
                                        : "full",
                    step.kind.rows, step.emitted, step.seconds});
  }
  return json;
}

Json RowJson(const PayoffRow& row) {
  return {{"group", row.group},
          {"prompt", row.id},
          {"tokens", row.prompt_tokens},
          {"temperature", row.temperature},
          {"plain", row.rates[0]},
          {"full", row.rates[1]},
          {"exact", row.rates[2]},
          {"ratio", row.ratio()},
          {"partial_passes", row.rounds.partial_passes},
          {"rounds", row.rounds.settled},
          {"confirmed", row.rounds.confirmed},
          {"rolled_back", row.rounds.rolled_back},
          {"plain_steps", StepsJson(row.steps[0])},
          {"full_steps", StepsJson(row.steps[1])},
          {"exact_steps", StepsJson(row.steps[kExactWay])},
          {"identical", row.identical}};
}

Status AddPrompts(const PayoffOptions& options, const Tokenizer* tokenizer, int vocab_size,
                  PayoffBench* bench) {
  const PromptReader reader{.tokenizer = tokenizer, .vocab_size = vocab_size};
  const StatusLine progress;
  for (const std::string& file : options.prompts) {
    TALON_ASSIGN_OR_RETURN(const auto prompts, reader.Read(file));
    for (const Prompt& prompt : prompts) {
      if (prompt.tokens.size() < static_cast<size_t>(options.least_tokens)) continue;
      progress.Show(fmt::format("{}: {}", file, prompt.id));
      TALON_RETURN_IF_ERROR(bench->AddPrompt(std::filesystem::path(file).stem().string(), prompt,
                                             options.temperatures));
    }
  }
  if (bench->rows().empty()) {
    return InvalidArgument("prompts: none of {} tokens", options.least_tokens);
  }
  return OkStatus();
}

Result<int> BenchPayoff(Config config, const PayoffOptions& options) {
  if (options.prompts.empty()) return InvalidArgument("prompts: missing; try --prompts FILE");
  config.max_sequences = 1;
  config.sampling.max_tokens = options.tokens;
  config.enable_prefix_cache = true;  // a prompt is computed once for all temperatures
  config.speculative.specpv.values.enabled = true;
  TALON_ASSIGN_OR_RETURN(const TimedModel timed, LoadTimed(config, /*shape=*/"", options.clock));
  const LoadedModel& model = *timed.model;
  TALON_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, RequireTokenizer(model));
  PayoffBench bench(timed, config, options.clock.modelled());
  TALON_RETURN_IF_ERROR(AddPrompts(options, tokenizer, model.target->config().vocab_size, &bench));
  std::vector<PayoffRow>& rows = bench.rows();
  std::ranges::stable_sort(rows, {}, &PayoffRow::ratio);
  Table table({"prompt", "tokens", "T", "plain t/s", "full t/s", "exact t/s", "/ better", "partial",
               "rounds", "trunk", "kept", "from", "same"});
  Json json = Json::array();
  for (const PayoffRow& row : rows) {
    AddRow(row, &table);
    json.push_back(RowJson(row));
  }
  std::printf("%s\n%s", table.ToString().c_str(), GroupTable(rows).c_str());
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"model", model.name},
                                                {"drafter", model.drafters.Name()},
                                                {"costs", options.clock.costs},
                                                {"noise_seed", options.clock.noise_seed},
                                                {"rows", json}}));
  const bool identical = std::ranges::all_of(rows, &PayoffRow::identical);
  return identical ? kExitOk : kExitFailed;
}

constexpr const char* kPayoffHelp =
    "\nThree engines decode each prompt, a step of one after a step of another: without\n"
    "drafts, with drafts over the whole prefix, and with SpecPV's exact mode. A step\n"
    "counts as the median of all with as many rows and the same view, so that other\n"
    "work on the machine matters little. The table begins with the prompt on which\n"
    "exact mode did worst against the better of the others. Its last columns are about\n"
    "exact mode: partial passes, rounds of them that a full pass has ended, their mean\n"
    "provisional tokens, the share of these that was confirmed, tokens before the first\n"
    "partial pass, and whether all texts are the same. A second table sums it up by file\n"
    "and temperature. Exit code 1: a text differs.\n"
    "\nWith --costs passes advance a clock by what they cost in a table, which the engine\n"
    "decides by: the texts are the model's, the times are those of an undisturbed\n"
    "machine and the same in every run. With --noise-seed the engine sees the times of\n"
    "a busy machine: it decides worse, and the table says how much.\n"
    "\n  talon bench payoff --prompts books.jsonl,recall.jsonl --tokens 128 \\\n"
    "      --costs bench/costs/tiny-cpu.json --noise-seed 1\n";

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
  AddClockOptions(command, &options->clock);
  command.AddOption("--json", &options->json, "Also write the figures to this file")
      .TypeName("FILE");
  AddSettings(command, config, kModelSettings | kSpeculativeSettings);
  command.SetFooter(kPayoffHelp);
  SetBody(command, body, [config, options] { return BenchPayoff(*config, *options); });
}

}  // namespace talon
