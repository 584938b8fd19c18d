// `talon bench batch`: many sequences at once, without speculation, with it, and as the adaptive
// policy has it.
#include <algorithm>
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/common/prompts.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/clock.h"
#include "base/json.h"
#include "setup/loader.h"
#include "setup/progress.h"

namespace talon {
namespace {

struct BatchOptions {
  std::vector<int> batches = {1, 2, 4, 8, 16, 32};
  std::string prompts;
  int repeats = 5;
  std::string json;
};

// The three ways, in the order of the table's columns.
struct Way {
  const char* name;
  DrafterList drafter;
  bool adaptive = false;
  std::unique_ptr<Engine> engine;
};

// Tokens per second while the whole batch decodes: from the last prompt's end to the first
// sequence's.
Result<double> RunBatch(Engine* engine, const std::vector<Prompt>& prompts, int batch,
                        const SamplingParams& sampling) {
  std::vector<RequestId> ids;
  int prompts_left = batch;
  int64_t emitted = 0;
  bool ended = false;
  for (int i = 0; i < batch; ++i) {
    GenerateRequest request{.prompt = prompts[static_cast<size_t>(i) % prompts.size()].tokens,
                            .sampling = sampling};
    request.sampling.choice = static_cast<uint32_t>(i);
    request.on_update = [&, first = true](const RequestUpdate& update) mutable {
      if (std::exchange(first, false)) --prompts_left;
      emitted += static_cast<int64_t>(update.tokens.size());
      ended = ended || update.finish != FinishReason::kNone;
    };
    TALON_ASSIGN_OR_RETURN(const RequestId id, engine->Submit(std::move(request)));
    ids.push_back(id);
  }
  while (prompts_left > 0 && engine->HasWork()) engine->RunStep();
  const int64_t emitted_before = std::exchange(ended, false) ? -1 : emitted;
  const Stopwatch watch;
  while (!ended && engine->HasWork()) engine->RunStep();
  const double seconds = watch.Seconds();
  const auto tokens = static_cast<double>(emitted - emitted_before);
  while (engine->HasWork()) engine->RunStep();
  for (const RequestId id : ids) {
    TALON_ASSIGN_OR_RETURN(const GenerateResult result, engine->Take(id));
    if (result.finish == FinishReason::kError) return result.error;
  }
  if (emitted_before < 0 || seconds <= 0) {
    return InvalidArgument(
        "max_tokens: {}: the first answer ends before the last of {} prompts is computed; try {}",
        sampling.max_tokens, batch, 4 * sampling.max_tokens);
  }
  return tokens / seconds;
}

// Rates [way][repeat], the ways taken in turn. Sampled text is new in each repeat, by `seed`;
// greedy text is that of before, so lookups find it.
Result<std::vector<std::vector<double>>> MeasureBatch(std::vector<Way>* ways,
                                                      const std::vector<Prompt>& prompts, int batch,
                                                      SamplingParams sampling, int repeats,
                                                      uint64_t* seed) {
  std::vector<std::vector<double>> rates(ways->size());
  const StatusLine progress;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    progress.Show(fmt::format("batch {}, run {} of {}", batch, repeat + 2, repeats + 1));
    sampling.seed = ++*seed;
    for (size_t way = 0; way < ways->size(); ++way) {
      TALON_ASSIGN_OR_RETURN(const double rate,
                             RunBatch((*ways)[way].engine.get(), prompts, batch, sampling));
      if (repeat >= 0) rates[way].push_back(rate);  // the first is a warm-up
    }
  }
  return rates;
}

double MedianRatio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Median(ratios);
}

Result<std::vector<Way>> MakeWays(LoadedModel* model, Config config) {
  const bool named = !IsAutoMethod(config.speculative.method) && !model->drafters.none();
  const DrafterList drafter = named ? model->drafters : DrafterList(DrafterKind::kEagle3);
  std::vector<Way> ways;
  ways.push_back({"off", DrafterList()});
  ways.push_back({"on", drafter});
  ways.push_back({"adaptive", drafter, true});
  for (Way& way : ways) {
    config.speculative.adaptive = way.adaptive;
    TALON_ASSIGN_OR_RETURN(way.engine, MakeEngine(model, config, way.drafter));
  }
  return ways;
}

Result<int> BenchBatch(Config config, const BatchOptions& options) {
  config.max_sequences = *std::max_element(options.batches.begin(), options.batches.end());
  config.sampling.ignore_eos = true;
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config));
  TALON_ASSIGN_OR_RETURN(const PromptReader reader, MakePromptReader(config.serve, *model));
  std::string path = options.prompts;
  if (path.empty()) {
    TALON_ASSIGN_OR_RETURN(path, BundledFile("tests/data/prompts/docs.jsonl"));
  }
  TALON_ASSIGN_OR_RETURN(const auto prompts, reader.Read(path));
  size_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.tokens.size());
  EngineOptions& engine = model->engine_options;
  engine.max_length = std::min(static_cast<int>(longest) + config.sampling.max_tokens + 1,
                               model->target->config().max_context);
  TALON_ASSIGN_OR_RETURN(auto ways, MakeWays(model.get(), config));
  TALON_ASSIGN_OR_RETURN(const SamplingParams sampling,
                         MakeSamplingParams(config.sampling, model->tokenizer.get()));
  Table table({"batch", "off t/s", "on t/s", "adaptive t/s", "on/off", "adaptive/off",
               "adaptive/best", "of batch 1"});
  Json rows = Json::array();
  uint64_t seed = sampling.seed.value_or(0);
  double alone = 0;
  double worst = 1e9;  // adaptive against off
  int worst_batch = 0;
  for (const int batch : options.batches) {
    TALON_ASSIGN_OR_RETURN(const auto rates,
                           MeasureBatch(&ways, prompts, batch, sampling, options.repeats, &seed));
    const double on = MedianRatio(rates[1], rates[0]);
    const double adaptive = MedianRatio(rates[2], rates[0]);
    const double best = on > 1 ? MedianRatio(rates[2], rates[1]) : adaptive;
    if (alone == 0) alone = Median(rates[2]);
    if (adaptive < worst) {
      worst = adaptive;
      worst_batch = batch;
    }
    table.Add({std::to_string(batch), fmt::format("{:.0f}", Median(rates[0])),
               fmt::format("{:.0f}", Median(rates[1])), fmt::format("{:.0f}", Median(rates[2])),
               fmt::format("{:.2f}x", on), fmt::format("{:.2f}x", adaptive),
               fmt::format("{:.2f}", best), fmt::format("{:.2f}x", Median(rates[2]) / alone)});
    rows.push_back({{"batch", batch},
                    {"off", Median(rates[0])},
                    {"on", Median(rates[1])},
                    {"adaptive", Median(rates[2])},
                    {"on_to_off", on},
                    {"adaptive_to_off", adaptive},
                    {"adaptive_to_best", best}});
  }
  std::printf("%s, drafter %s, %zu prompts, %d new tokens each, median of %d runs in turn\n%s",
              model->name.c_str(), ways[1].drafter.Name().c_str(), prompts.size(),
              config.sampling.max_tokens, options.repeats, table.ToString().c_str());
  std::printf("adaptive at its worst: %.2fx of off, batch %d\n", worst, worst_batch);
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"model", model->name},
                                                {"device", model->backend->info().description},
                                                {"drafter", ways[1].drafter.Name()},
                                                {"prompts", path},
                                                {"temperature", sampling.temperature},
                                                {"worst_adaptive_to_off", worst},
                                                {"batches", rows}}));
  return kExitOk;
}

}  // namespace

void AddBenchBatch(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<BatchOptions>();
  Command command = bench.AddSubcommand(
      "batch", "Tokens/s of many sequences at once: speculation off, on, adaptive");
  command.AddOption("--batches", &options->batches, "Sequences at once")
      .Delimiter(',')
      .Range(1, 1024);
  command.AddOption("--prompts", &options->prompts,
                    "JSON lines with \"prompt\" (default: the bundled documents)");
  command.AddOption("--repeats", &options->repeats, "Timed runs; the median counts")
      .Default(options->repeats)
      .Range(1, 1000);
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings | kSamplingSettings | kSpeculativeSettings);
  SetBody(command, body, [config, options] { return BenchBatch(*config, *options); });
}

}  // namespace talon
