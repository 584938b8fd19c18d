// `talon bench simulate`: the speed of a head with a given acceptance on this machine. The engine
// runs real steps with a head of random weights; the number of accepted drafts is drawn.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

#include "apps/bench/acceptance.h"
#include "apps/bench/bench.h"
#include "apps/bench/modelled/timed_model.h"
#include "apps/bench/stages.h"
#include "apps/common/table.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/math.h"
#include "setup/engine_settings.h"
#include "setup/loader.h"
#include "setup/progress.h"
#include "spec/drafters/heads/block_drafter.h"
#include "spec/drafters/heads/eagle_drafter.h"

namespace talon {
namespace {

constexpr int kWarmUpSteps = 8;    // passes are captured in them
constexpr int kPolicySteps = 200;  // more of them, in which the policy learns
constexpr int kStageSteps = 16;    // timed once more, stage by stage

struct SimulateOptions {
  std::string shape;
  std::vector<double> acceptance;
  std::vector<double> agreement;  // empty: no partial verification
  std::vector<int> batches = {1, 8, 32, 64};
  std::vector<int> contexts = {1024};
  int steps = 64;
  int prompts = 0;
  int seed = 1;
  bool policy = false;
  ClockOptions clock;
  std::string json;
};

// Ways of decoding: without drafts, with them over the whole prefix, and over partial views.
enum class Way { kPlain, kFull, kExact, kFast };

// What a number of steps took.
struct Timing {
  int64_t tokens = 0;
  int64_t confirmed = 0;  // provisional tokens, and those that were not
  int64_t rolled_back = 0;
  double partial_share = 0;  // partial ones among the passes
  double seconds = 0;
  double nodes = 1;   // a tree has, mean
  StageTimes stages;  // times of a few more steps

  double ConfirmedShare() const {
    const auto all = static_cast<double>(confirmed + rolled_back);
    return all > 0 ? static_cast<double>(confirmed) / all : 0;
  }
  double rate() const { return static_cast<double>(tokens) / seconds; }
  // Share of a stage, by the device's clock where it has one.
  double Share(std::string_view name) const {
    const auto at = std::ranges::find(stages.stages, name, &StageTimes::Stage::name);
    if (at == stages.stages.end()) return 0;
    const bool has_clock = stages.DeviceSeconds() > 0;
    return (has_clock ? at->device_seconds : at->host_seconds) / stages.seconds;
  }
};

class Simulation {
 public:
  // Fits `model` to the largest batch and context.
  static Result<std::unique_ptr<Simulation>> Create(const TimedModel& timed, const Config& config,
                                                    const DrafterList& drafter,
                                                    const SimulateOptions& options);

  // Steps of `batch` sequences, all of them of about `context` tokens.
  Result<Timing> Run(int batch, int context, Way way);
  const DrawnAcceptance& acceptance() const { return acceptance_; }

 private:
  Simulation(const TimedModel& timed, const DraftBudget& budget, const SimulateOptions& options)
      : model_(timed.model.get()),
        clock_(*timed.clock),
        budget_(budget),
        options_(options),
        acceptance_(options.acceptance, options.agreement, static_cast<uint64_t>(options.seed)) {}
  Result<std::unique_ptr<Drafter>> NewDrafter(const DrafterList& drafter);
  int WarmUpSteps() const { return kWarmUpSteps + (options_.policy ? kPolicySteps : 0); }
  // Tokens of a sequence after its prompt.
  int Room() const {
    return (WarmUpSteps() + options_.steps + kStageSteps + 2) * (budget_.max_depth + 1);
  }
  // Whole blocks and the root, so that all sequences begin to decode in the same step.
  int PromptLength(int context) const {
    const int block = model_->engine_options.block_size;
    return CeilDiv(context, block) * block + 1;
  }
  // Different prompts of a batch; its other sequences share them.
  int NumPrompts(int batch) const {
    return options_.prompts > 0 ? std::min(options_.prompts, batch) : batch;
  }
  Result<std::vector<RequestId>> Submit(int batch, int context, const SamplingParams& sampling,
                                        Way way);
  // Computes the prompts and leaves them to the prefix cache.
  Status Prepare(int batch, int context);
  Status End(const std::vector<RequestId>& ids);

  LoadedModel* model_;
  const Clock& clock_;
  DraftBudget budget_;
  const SimulateOptions& options_;
  DrawnAcceptance acceptance_;
  Metrics draft_metrics_;
  std::unique_ptr<Engine> engine_;
  int64_t tokens_ = 0;  // emitted so far
  int64_t nodes_ = 0;   // verified so far
};

Result<std::unique_ptr<Simulation>> Simulation::Create(const TimedModel& timed,
                                                       const Config& config,
                                                       const DrafterList& drafter,
                                                       const SimulateOptions& options) {
  const DraftBudget budget = DraftBudgetOf(config, drafter);
  std::unique_ptr<Simulation> simulation(new Simulation(timed, budget, options));
  LoadedModel* const model = timed.model.get();
  const int context = *std::ranges::max_element(options.contexts);
  EngineOptions& engine = model->engine_options;
  const int length = simulation->PromptLength(context) + simulation->Room();
  if (const int most = model->target->config().max_context; length > most) {
    return InvalidArgument("contexts: {} tokens and {} steps need {}, the model's context is {}",
                           context, options.steps, length, most);
  }
  engine.max_length = length;
  const int shared = engine.max_sequences - simulation->NumPrompts(engine.max_sequences);
  const auto blocks = [&](int tokens) { return CeilDiv(tokens, engine.block_size) + 1; };
  engine.kv_tokens = engine.block_size * (blocks(length) * (engine.max_sequences - shared) +
                                          blocks(simulation->Room()) * shared);
  engine.step.edit_choices = [self = simulation.get()](const TokenTree& tree, int trunk,
                                                       std::span<int32_t> choices) {
    self->nodes_ += tree.size() - trunk;
    self->acceptance_.Edit(tree, trunk, choices);
  };
  TALON_ASSIGN_OR_RETURN(auto head, simulation->NewDrafter(drafter));
  TALON_ASSIGN_OR_RETURN(simulation->engine_, MakeEngine(model, config, drafter, std::move(head)));
  return simulation;
}

Result<std::unique_ptr<Drafter>> Simulation::NewDrafter(const DrafterList& drafter) {
  const DrafterOptions& options = model_->drafter_options;
  const DraftCacheShape cache =
      model_->engine_options.DraftCache(model_->target->config().max_context);
  const DraftWindow window{.window = options.window, .sink = options.sink};
  std::unique_ptr<Drafter> head;
  if (drafter == DrafterKind::kEagle3) {
    TALON_ASSIGN_OR_RETURN(
        head, EagleDrafter::Load({.random = true,
                                  .budget = budget_,
                                  .capture_layers = options.capture_layers,
                                  .window = window,
                                  .cache = cache,
                                  .weights = options.weights},
                                 *model_->target, model_->backend.get(), &draft_metrics_));
  } else {
    const auto kind = drafter == DrafterKind::kJetspec ? DraftKind::kJetspec : DraftKind::kDflash;
    TALON_ASSIGN_OR_RETURN(
        head, BlockDrafter::Load({.random = kind,
                                  .budget = budget_,
                                  .capture_layers = options.capture_layers,
                                  .window = window,
                                  .cache = cache,
                                  .weights = options.weights},
                                 *model_->target, model_->backend.get(), &draft_metrics_));
  }
  return head;
}

Result<std::vector<RequestId>> Simulation::Submit(int batch, int context,
                                                  const SamplingParams& sampling, Way way) {
  const auto vocabulary = static_cast<uint32_t>(model_->target->config().vocab_size);
  std::vector<RequestId> ids;
  for (int i = 0; i < batch; ++i) {
    std::mt19937 random(static_cast<uint32_t>(i % NumPrompts(batch)));
    GenerateRequest request{.sampling = sampling, .speculate = way != Way::kPlain};
    if (!options_.agreement.empty()) {
      request.specpv.off = way == Way::kPlain || way == Way::kFull;
      request.specpv.mode = way == Way::kFast ? SpecPvMode::kFast : SpecPvMode::kExact;
    }
    request.prompt.resize(PromptLength(context));
    for (int32_t& token : request.prompt) token = static_cast<int32_t>(random() % vocabulary);
    request.on_update = [this](const RequestUpdate& update) {
      tokens_ += static_cast<int64_t>(update.tokens.size());
    };
    TALON_ASSIGN_OR_RETURN(const RequestId id, engine_->Submit(std::move(request)));
    ids.push_back(id);
  }
  return ids;
}

Status Simulation::End(const std::vector<RequestId>& ids) {
  for (const RequestId id : ids) {
    engine_->Cancel(id);
    TALON_ASSIGN_OR_RETURN(const GenerateResult result, engine_->Take(id));
    if (result.finish == FinishReason::kError) return result.error;
  }
  return OkStatus();
}

Status Simulation::Prepare(int batch, int context) {
  SamplingParams sampling;
  sampling.max_tokens = 1;
  sampling.ignore_eos = true;
  TALON_ASSIGN_OR_RETURN(const auto ids, Submit(NumPrompts(batch), context, sampling, Way::kFull));
  while (engine_->HasWork()) engine_->RunStep();
  return End(ids);
}

Result<Timing> Simulation::Run(int batch, int context, Way way) {
  TALON_RETURN_IF_ERROR(Prepare(batch, context));
  SamplingParams sampling;
  sampling.max_tokens = Room();
  sampling.ignore_eos = true;
  TALON_ASSIGN_OR_RETURN(const auto ids, Submit(batch, context, sampling, way));
  for (int i = 0; i < WarmUpSteps(); ++i) engine_->RunStep();
  Timing timing;
  const Metrics& metrics = engine_->metrics();
  const auto count = [&](Counter counter) { return metrics.Total(counter); };
  const auto partial = [&] { return metrics.Get(Counter::kSpecVerifyPasses, "partial"); };
  const int64_t before = tokens_;
  const int64_t confirmed = count(Counter::kSpecPvConfirmedTokens);
  const int64_t rolled_back = count(Counter::kSpecPvRolledBackTokens);
  const int64_t passes = count(Counter::kSpecVerifyPasses);
  const int64_t partial_before = partial();
  const double pending = metrics.Get(Gauge::kSpecPvProvisionalTokens);
  nodes_ = 0;
  const Stopwatch watch(clock_);
  for (int i = 0; i < options_.steps; ++i) engine_->RunStep();
  timing.seconds = watch.Seconds();
  timing.tokens = tokens_ - before;
  timing.confirmed = count(Counter::kSpecPvConfirmedTokens) - confirmed;
  timing.rolled_back = count(Counter::kSpecPvRolledBackTokens) - rolled_back;
  // Rounds that are under way at either end count with what is expected of them.
  timing.tokens += std::llround(timing.ConfirmedShare() *
                                (metrics.Get(Gauge::kSpecPvProvisionalTokens) - pending));
  timing.partial_share = static_cast<double>(partial() - partial_before) /
                         static_cast<double>(count(Counter::kSpecVerifyPasses) - passes);
  timing.nodes = static_cast<double>(nodes_) / batch / options_.steps;
  if (!options_.clock.modelled()) {
    timing.stages = TimeSteps(model_->backend.get(), engine_.get(), kStageSteps);
  }
  const int running = engine_->num_running();
  TALON_RETURN_IF_ERROR(End(ids));
  if (running != batch) return Internal("simulate: {} of {} sequences ran", running, batch);
  return timing;
}

// A share of 0 where stages were not timed.
std::string Percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

// One batch and context: a row of the table and of the JSON.
Status Measure(Simulation* simulation, const SimulateOptions& options, int batch, int context,
               Table* table, Json* rows) {
  TALON_ASSIGN_OR_RETURN(const Timing plain, simulation->Run(batch, context, Way::kPlain));
  TALON_ASSIGN_OR_RETURN(const Timing spec, simulation->Run(batch, context, Way::kFull));
  const double tau = static_cast<double>(spec.tokens) / batch / options.steps;
  const double draft = spec.Share("Propose");
  const double verify = spec.Share("Verify") + spec.Share("NWOR_staging");  // one in the other
  const double rest = std::max(0.0, 1 - draft - verify);
  const auto milliseconds = [&](const Timing& timing) {
    return 1e3 * timing.seconds / options.steps;
  };
  table->Add({std::to_string(batch), std::to_string(context), fmt::format("{:.0f}", plain.rate()),
              fmt::format("{:.0f}", spec.rate()),
              fmt::format("{:.2f}x", spec.rate() / plain.rate()), fmt::format("{:.2f}", tau),
              fmt::format("{:.1f}", spec.nodes), fmt::format("{:.3f}", milliseconds(plain)),
              fmt::format("{:.3f}", milliseconds(spec)), Percent(draft), Percent(verify),
              Percent(rest)});
  rows->push_back({{"batch", batch},
                   {"context", context},
                   {"plain_tokens_per_second", plain.rate()},
                   {"tokens_per_second", spec.rate()},
                   {"speed_up", spec.rate() / plain.rate()},
                   {"tau", tau},
                   {"nodes", spec.nodes},
                   {"plain_step_milliseconds", milliseconds(plain)},
                   {"step_milliseconds", milliseconds(spec)},
                   {"draft_share", draft},
                   {"verify_share", verify},
                   {"rest_share", rest},
                   {"plain_idle_share", plain.stages.IdleShare()},
                   {"idle_share", spec.stages.IdleShare()}});
  return OkStatus();
}

// The same with partial verification, exact and fast.
Status MeasurePartial(Simulation* simulation, int batch, int context, Table* table, Json* rows) {
  TALON_ASSIGN_OR_RETURN(const Timing plain, simulation->Run(batch, context, Way::kPlain));
  TALON_ASSIGN_OR_RETURN(const Timing full, simulation->Run(batch, context, Way::kFull));
  TALON_ASSIGN_OR_RETURN(const Timing exact, simulation->Run(batch, context, Way::kExact));
  TALON_ASSIGN_OR_RETURN(const Timing fast, simulation->Run(batch, context, Way::kFast));
  const double confirmed = exact.ConfirmedShare();
  const auto rate = [](const Timing& timing) { return fmt::format("{:.0f}", timing.rate()); };
  const auto ratio = [](const Timing& a, const Timing& b) {
    return fmt::format("{:.2f}x", a.rate() / b.rate());
  };
  table->Add({std::to_string(batch), std::to_string(context), rate(plain), rate(full), rate(exact),
              rate(fast), ratio(exact, plain), ratio(exact, full), ratio(fast, full),
              Percent(exact.partial_share), Percent(confirmed)});
  rows->push_back({{"batch", batch},
                   {"context", context},
                   {"plain_tokens_per_second", plain.rate()},
                   {"tokens_per_second", full.rate()},
                   {"exact_tokens_per_second", exact.rate()},
                   {"fast_tokens_per_second", fast.rate()},
                   {"exact_to_plain", exact.rate() / plain.rate()},
                   {"exact_to_full", exact.rate() / full.rate()},
                   {"fast_to_full", fast.rate() / full.rate()},
                   {"partial_share", exact.partial_share},
                   {"confirmed_share", confirmed}});
  return OkStatus();
}

Status MeasureAll(Simulation* simulation, const SimulateOptions& options, Table* table,
                  Json* rows) {
  const StatusLine progress;
  for (const int context : options.contexts) {
    for (const int batch : options.batches) {
      progress.Show(fmt::format("batch {}, context {}", batch, context));
      if (options.agreement.empty()) {
        TALON_RETURN_IF_ERROR(Measure(simulation, options, batch, context, table, rows));
      } else {
        TALON_RETURN_IF_ERROR(MeasurePartial(simulation, batch, context, table, rows));
      }
    }
  }
  return OkStatus();
}

// The settings as the simulation needs them, and its drafter.
Result<DrafterList> Adjust(const SimulateOptions& options, Config* config) {
  if (options.acceptance.empty()) {
    return InvalidArgument("acceptance: missing; try --acceptance 0.8,0.75,0.7");
  }
  SpeculativeConfig& speculative = config->speculative;
  const auto depth = static_cast<int>(options.acceptance.size());
  if (speculative.num_steps > 0 && speculative.num_steps != depth) {
    return InvalidArgument("acceptance: {} values, the tree has {} levels (speculative_num_steps)",
                           depth, speculative.num_steps);
  }
  if (speculative.method == kAutoMethod) speculative.method = "EAGLE3";
  TALON_ASSIGN_OR_RETURN(const DrafterList drafter, DrafterList::Parse(speculative.method));
  if (drafter != DrafterKind::kEagle3 && drafter != DrafterKind::kJetspec &&
      drafter != DrafterKind::kDflash) {
    return InvalidArgument("speculative_algorithm: {}, simulate knows EAGLE3, JETSPEC and DFLASH",
                           speculative.method);
  }
  speculative.num_steps = depth;
  speculative.adaptive = options.policy;
  if (options.agreement.empty()) speculative.specpv = {};
  speculative.specpv.values.enabled = !options.agreement.empty();
  config->enable_prefix_cache = true;
  config->max_sequences = *std::ranges::max_element(options.batches);
  return drafter;
}

Result<int> BenchSimulate(Config config, const SimulateOptions& options) {
  TALON_ASSIGN_OR_RETURN(const DrafterList drafter, Adjust(options, &config));
  const DraftBudget budget = DraftBudgetOf(config, drafter);
  if (budget.max_nodes <= budget.max_depth) {
    return InvalidArgument("speculative_num_draft_tokens: {}, a path of {} levels has {} nodes",
                           budget.max_nodes, budget.max_depth, budget.max_depth + 1);
  }
  TALON_ASSIGN_OR_RETURN(const TimedModel timed, LoadTimed(config, options.shape, options.clock,
                                                           /*computes=*/!options.clock.modelled()));
  const LoadedModel* const model = timed.model.get();
  TALON_ASSIGN_OR_RETURN(const auto simulation,
                         Simulation::Create(timed, config, drafter, options));
  const double expected = simulation->acceptance().ExpectedTau();
  Table table(options.agreement.empty()
                  ? std::vector<std::string>{"batch", "context", "plain t/s", "t/s", "speed-up",
                                             "tau", "nodes", "plain ms", "step ms", "draft",
                                             "verify", "rest"}
                  : std::vector<std::string>{"batch", "context", "plain t/s", "full t/s",
                                             "exact t/s", "fast t/s", "exact/plain", "exact/full",
                                             "fast/full", "partial", "kept"});
  Json rows = Json::array();
  TALON_RETURN_IF_ERROR(MeasureAll(simulation.get(), options, &table, &rows));
  std::printf(
      "%s, weights %s\n%s\n%s head with random weights: at most %d nodes, %d levels, top-k %d%s;"
      " %d steps\nSIMULATED acceptance, tau %.2f expected\n%s",
      model->name.c_str(), config.weights.c_str(), model->backend->info().description.c_str(),
      drafter.Name().c_str(), budget.max_nodes, budget.max_depth, budget.top_k,
      options.policy ? ", nodes by the policy" : "", options.steps, expected,
      table.ToString().c_str());
  if (const int64_t cut = simulation->acceptance().cut_short(); cut > 0) {
    std::printf("%ld draws were deeper than the tree\n", static_cast<long>(cut));
  }
  TALON_RETURN_IF_ERROR(SaveJson(
      options.json, {{"model", model->name},
                     {"weights", config.weights},
                     {"device", model->backend->info().description},
                     {"acceptance", options.acceptance},
                     {"agreement", options.agreement},
                     {"kv_offload", config.kv_offload},
                     {"retrieval_tokens", model->engine_options.step.specpv.RetrievalTokens()},
                     {"expected_tau", expected},
                     {"drafter", drafter.Name()},
                     {"policy", options.policy},
                     {"nodes", budget.max_nodes},
                     {"depth", budget.max_depth},
                     {"top_k", budget.top_k},
                     {"steps", options.steps},
                     {"rows", rows}}));
  return kExitOk;
}

constexpr const char* kSimulateHelp =
    "\nRuns real steps of the engine: a head of the usual shape with random weights\n"
    "drafts, the target verifies, accepted tokens are committed. Only how many\n"
    "drafts are right is drawn, from --acceptance. So the times are this machine's,\n"
    "and the tokens are those of a head that you have read about. The head is\n"
    "EAGLE-3's, or by --speculative-algorithm JETSPEC or DFLASH a block head of five\n"
    "layers.\n"
    "\nFor --acceptance a1,a2,... a step has tau = 1 + a1 + a1*a2 + ... tokens. The\n"
    "tree has as many levels as there are values; --speculative-eagle-topk and\n"
    "--speculative-num-draft-tokens set its branches and nodes. Top-k 1 is a chain.\n"
    "\nTrees are never trimmed, unless --policy lets the adaptive policy choose how\n"
    "many nodes are worth it, as serve does. Acceptance by depth is then still the\n"
    "one given, which is right for chains: a smaller tree of several branches would\n"
    "lose some.\n"
    "\nWith --specpv-agreement also partial verification: real partial and full passes,\n"
    "where only what a full pass confirms is drawn. Columns: tokens/s without drafts,\n"
    "with them over the whole prefix, and in SpecPV's exact and fast mode, their\n"
    "ratios, the share of exact mode's passes that were partial, and of its\n"
    "provisional tokens that were confirmed. `bench agreement` measures agreement.\n"
    "\nElse the columns are plain and speculative tokens/s, their ratio, tau as drawn,\n"
    "nodes of a tree, a step's milliseconds, and the share of drafting, verification\n"
    "and the rest of a step: by the device's clock where it has one, so that idle\n"
    "time is in the rest.\n"
    "\nA chain of three, then the EAGLE-3 paper's tau of 6.1 for an 8B model:\n"
    "\n  talon bench simulate --acceptance 0.8,0.75,0.7 --speculative-eagle-topk 1\n"
    "  talon bench simulate --shape llama-8b --device cuda \\\n"
    "      --speculative-eagle-topk 10 --speculative-num-draft-tokens 60 \\\n"
    "      --acceptance 0.92,0.92,0.92,0.92,0.92,0.92,0.92\n";

}  // namespace

void AddBenchSimulate(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<SimulateOptions>();
  Command command = bench.AddSubcommand(
      "simulate", "Speed of a head whose acceptance is given, with real passes");
  command
      .AddOption("--acceptance", &options->acceptance,
                 "By depth: the probability that some node at depth d is right, given that one at "
                 "depth d - 1 was")
      .Delimiter(',')
      .Range(0.0, 1.0)
      .TypeName("P,...");
  command
      .AddOption("--specpv-agreement", &options->agreement,
                 "With SpecPV: the probability that a full pass confirms a provisional token, by "
                 "distance from the last one: 1, 2 to 3, 4 to 7, ...")
      .Delimiter(',')
      .Range(0.0, 1.0)
      .TypeName("P,...");
  command
      .AddOption("--num-prompts", &options->prompts,
                 "Different prompts; the other sequences share them and their memory; 0 = all "
                 "differ")
      .Default(options->prompts)
      .Range(0, 1024);
  command.AddOption("--shape", &options->shape,
                    "Random weights of this shape instead of a model: " + ShapeNames());
  command.AddOption("--batches", &options->batches, "Sequences at once (1,8,32,64)")
      .Delimiter(',')
      .Range(1, 1024)
      .TypeName("N,...");
  command.AddOption("--contexts", &options->contexts, "Tokens of each sequence (1024)")
      .Delimiter(',')
      .Range(1, 1 << 20)
      .TypeName("N,...");
  command.AddOption("--steps", &options->steps, "Timed steps")
      .Default(options->steps)
      .Range(1, 100000);
  command.AddOption("--acceptance-seed", &options->seed, "Of the draws")
      .Default(options->seed)
      .Range(0, 1 << 30);
  command.AddFlag("--policy", &options->policy,
                  "Let the adaptive policy choose how many nodes are verified");
  AddClockOptions(command, &options->clock);
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings | kSpeculativeSettings);
  command.SetFooter(kSimulateHelp);
  SetBody(command, body, [config, options] { return BenchSimulate(*config, *options); });
}

}  // namespace talon
