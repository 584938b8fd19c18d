// `talon bench longcontext`: what verification costs as the context grows, in full and in part.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "apps/bench/bench.h"
#include "apps/bench/longcontext.h"
#include "apps/bench/longcontext_figures.h"
#include "apps/bench/longcontext_recall.h"
#include "apps/bench/longcontext_report.h"
#include "apps/doctor/text.h"
#include "apps/run_remote.h"
#include "base/json.h"
#include "base/threads.h"
#include "compute/cpu/peaks.h"
#include "setup/loader.h"

namespace talon {
namespace {

constexpr const char* kBundledTokens = "models/tiny/prompts_tokens.jsonl";

struct LongContextOptions {
  std::vector<int> contexts = {1024, 4096, 8192, 16384, 30000};
  std::vector<int> budgets = {512, 1024, 2048, 4096};
  std::vector<std::string> modes = {"plain", "eagle3", "eagle3+specpv-exact", "eagle3+specpv-fast"};
  std::string prompts;
  int prompts_per_context = 1;
  int repeats = 1;
  std::string recall;
  int recall_per_length = 0;
  std::string json;
};

// Everything one run of the command works with.
struct LongContextBench {
  Config config;
  LongContextOptions options;
  std::vector<Variant> variants;
  std::unique_ptr<LoadedModel> model;
  ProbeText text;              // its documents longest first
  std::vector<Prompt> recall;  // empty: not asked for
  std::vector<ContextRuns> runs;
  Json json;
};

// The bench compares texts of equal length and seed, one at a time.
Config BenchConfig(Config config, const std::vector<Variant>& variants) {
  config.max_sequences = 1;
  config.enable_prefix_cache = false;  // prompts are run again and again
  config.sampling.ignore_eos = true;
  config.sampling.stop.clear();
  config.sampling.stop_token_ids.clear();
  if (config.sampling.seed < 0) config.sampling.seed = 1;
  config.speculative.specpv.values.enabled =
      std::any_of(variants.begin(), variants.end(),
                  [](const Variant& variant) { return variant.partial.has_value(); });
  return config;
}

Status CheckContexts(const LongContextBench& bench) {
  const int longest = bench.model->target->config().max_context;
  for (const int context : bench.options.contexts) {
    if (context + bench.config.sampling.max_tokens > longest) {
      return InvalidArgument("contexts: {} + {} new tokens, the model's context is {}", context,
                             bench.config.sampling.max_tokens, longest);
    }
  }
  return OkStatus();
}

Status ReadTexts(LongContextBench* bench) {
  std::string path = bench->options.prompts;
  if (path.empty()) {
    const bool texts = bench->model->tokenizer != nullptr;
    const auto bundled = BundledFile(texts ? "tests/data/prompts/books.jsonl" : kBundledTokens);
    if (!bundled.ok()) {
      return InvalidArgument("prompts: {}; give texts with --prompts", bundled.status().message());
    }
    path = *bundled;
  }
  TALON_ASSIGN_OR_RETURN(bench->text, MakeProbeText(bench->model.get(), bench->config, path, 0));
  std::stable_sort(bench->text.documents.begin(), bench->text.documents.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  if (bench->options.recall.empty()) return OkStatus();
  TALON_ASSIGN_OR_RETURN(bench->recall, ReadRecallPrompts(bench->options.recall, *bench->model,
                                                          bench->options.recall_per_length));
  return OkStatus();
}

// Everything that can be wrong with the request is found before the first long run.
Status Prepare(const Config& config, LongContextBench* bench) {
  const LongContextOptions& options = bench->options;
  TALON_ASSIGN_OR_RETURN(bench->variants,
                         ParseVariants(options.modes, options.budgets, config.block_size));
  bench->config = BenchConfig(config, bench->variants);
  TALON_ASSIGN_OR_RETURN(bench->model, LoadTarget(bench->config));
  TALON_RETURN_IF_ERROR(CheckContexts(*bench));
  return ReadTexts(bench);
}

// All variants on the same prompts, one after the other.
Result<ContextRuns> RunContext(LongContextBench* bench, int context) {
  ContextRuns runs{.context = context};
  const size_t count = bench->variants.size();
  runs.samples.resize(count);
  const int rounds = bench->options.repeats * bench->options.prompts_per_context;
  for (int round = 0; round < rounds; ++round) {
    const int document = round % bench->options.prompts_per_context;
    const std::vector<int32_t> prompt =
        bench->text.Context(document % static_cast<int>(bench->text.documents.size()), context);
    for (size_t i = 0; i < count; ++i) {
      // Rotated, so that none always runs first.
      const size_t v = (i + static_cast<size_t>(round)) % count;
      const std::string what =
          fmt::format("{} tokens, run {} of {}: {}", context, round * count + i + 1,
                      static_cast<size_t>(rounds) * count, bench->variants[v].Label());
      TALON_ASSIGN_OR_RETURN(Sample sample, RunSample(bench->model.get(), bench->config,
                                                      bench->variants[v], prompt, what));
      runs.samples[v].push_back(std::move(sample));
    }
  }
  return runs;
}

// Prints what is known as soon as it is: a whole run can take an hour.
void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

Status RunContexts(LongContextBench* bench) {
  const bool lossless = bench->model->engine_options.step.accept == AcceptMode::kMatch ||
                        bench->config.sampling.temperature == 0;
  for (const int context : bench->options.contexts) {
    TALON_ASSIGN_OR_RETURN(ContextRuns runs, RunContext(bench, context));
    bench->json["contexts"].push_back(ContextJson(bench->variants, runs, lossless));
    bench->runs.push_back(std::move(runs));
    Print(ContextReport(bench->json["contexts"].back()));
    TALON_RETURN_IF_ERROR(SaveJson(bench->options.json, bench->json));
  }
  return OkStatus();
}

// The matrix instructions that the weights are multiplied with.
std::pair<MatrixKind, const char*> MatrixKindOf(const LongContextBench& bench) {
  const std::string& weights = bench.config.weights;
  const DType stored = bench.model->target->config().dtype;
  if (weights == "int8" || weights == "int4") return {MatrixKind::kInt8, "int8"};
  if (weights == "bf16" || (weights == "auto" && stored == DType::kBF16)) {
    return {MatrixKind::kBF16, "bf16"};
  }
  return {MatrixKind::kF32, "f32"};
}

// Last, because the measurement of the bandwidth takes memory of its own.
void AddRoofline(LongContextBench* bench) {
  ThreadPool pool(bench->config.threads);
  const auto [kind, name] = MatrixKindOf(*bench);
  const double bandwidth = MeasureReadBandwidth(pool);
  const double matrix = MeasureMatrixPeak(pool, kind);
  if (bandwidth <= 0 || matrix <= 0) {
    Print("\nRoofline: the peaks of this machine could not be measured\n");
    return;
  }
  const RooflineInput input{
      .model = bench->model->target->config(),
      .weight_bytes = static_cast<double>(bench->model->target->weight_bytes_per_pass()),
      .block_size = bench->config.block_size,
      .peaks = {.bytes_per_second = bandwidth * 1e9, .flops_per_second = matrix * 1e9}};
  Json& json = bench->json;
  json["peaks"] = {
      {"bandwidth_gb_per_second", bandwidth}, {"matrix_gflops", matrix}, {"matrix_kind", name}};
  for (const ContextRuns& runs : bench->runs) {
    json["roofline"].push_back(RooflineJson(input, bench->variants, runs));
  }
  Print(RooflineReport(json["roofline"].back(), json["contexts"].back(), json["peaks"]));
}

void AddSummaries(LongContextBench* bench) {
  Json& json = bench->json;
  json["agreement"] = AgreementJson(bench->variants, bench->runs);
  json["flatness"] = FlatnessJson(json["contexts"]);
  json["memory"] = MemoryJson(bench->variants, bench->runs);
  json["peak_memory_bytes"] = PeakMemoryBytes();
  Print(AgreementReport(json["agreement"]) + FlatnessReport(json["flatness"]) +
        MemoryReport(json["memory"]));
}

Json SpecPvJson(const SpecPvSettings& settings) {
  const SpecPvConfig& v = settings.values;
  return {{"selector", settings.selector},
          {"reduce", settings.reduce},
          {"sink_blocks", v.sink_blocks},
          {"window_blocks", v.window_blocks},
          {"buffer_tokens", v.buffer_tokens},
          {"partial_threshold", v.partial_threshold},
          {"full_refresh_interval", v.full_refresh_interval},
          {"adaptive", v.adaptive},
          {"shadow_rate", v.shadow_rate},
          {"error_target", v.error_target}};
}

// What the figures are of.
void Begin(LongContextBench* bench) {
  const Config& config = bench->config;
  const LoadedModel& model = *bench->model;
  bench->json = {{"model", model.name},
                 {"device", model.backend->info().description},
                 {"weights", config.weights},
                 {"kv_dtype", config.kv_dtype},
                 {"block_size", config.block_size},
                 {"max_tokens", config.sampling.max_tokens},
                 {"temperature", config.sampling.temperature},
                 {"speculative_adaptive", config.speculative.adaptive},
                 {"specpv", SpecPvJson(config.speculative.specpv)},
                 {"prompts", bench->text.origin},
                 {"repeats", bench->options.repeats},
                 {"prompts_per_context", bench->options.prompts_per_context},
                 {"contexts", Json::array()}};
  Print(fmt::format("{}\n{}\nweights {}, KV {}, {} new tokens, median of {}\n", model.name,
                    model.backend->info().description, config.weights, config.kv_dtype,
                    config.sampling.max_tokens,
                    bench->options.repeats * bench->options.prompts_per_context));
  size_t tokens = 0;
  for (const auto& document : bench->text.documents) tokens += document.size();
  if (tokens < static_cast<size_t>(bench->options.contexts.back())) {
    Print(fmt::format("the texts have {} tokens: longer contexts repeat them\n", tokens));
  }
}

Result<int> BenchLongContext(const Config& config, LongContextOptions options) {
  std::sort(options.contexts.begin(), options.contexts.end());
  LongContextBench bench{.options = std::move(options)};
  TALON_RETURN_IF_ERROR(Prepare(config, &bench));
  Begin(&bench);
  TALON_RETURN_IF_ERROR(RunContexts(&bench));
  AddSummaries(&bench);
  if (!bench.recall.empty()) {
    TALON_ASSIGN_OR_RETURN(bench.json["recall"], RunRecall(bench.model.get(), bench.config,
                                                           bench.variants, bench.recall));
    Print(RecallReport(bench.json["recall"]));
  }
  AddRoofline(&bench);
  TALON_RETURN_IF_ERROR(SaveJson(bench.options.json, bench.json));
  const auto differences =
      Differences(bench.json["contexts"], bench.json.value("recall", Json::array()));
  for (const std::string& line : differences) std::fprintf(stderr, "talon: %s\n", line.c_str());
  return differences.empty() ? kExitOk : kExitFailed;
}

Option AddNumbers(Command command, const char* flag, std::vector<int>* values, const char* help) {
  return command.AddOption(flag, values, help).Delimiter(',').Range(16, 1 << 24).TypeName("N,...");
}

Option AddCount(Command command, const char* flag, int* value, int least, const char* help) {
  return command.AddOption(flag, value, help).Default(*value).Range(least, 1000);
}

}  // namespace

void AddBenchLongContext(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<LongContextOptions>();
  Command command =
      bench.AddSubcommand("longcontext", "Full and partial verification as the context grows");
  AddNumbers(command, "--contexts", &options->contexts,
             "Tokens of the prompts (default 1024,4096,8192,16384,30000)");
  AddNumbers(command, "--budgets", &options->budgets,
             "Tokens that partial verification retrieves (default 512,1024,2048,4096)");
  command
      .AddOption("--modes", &options->modes,
                 "plain first, then drafters, over the whole prefix or with +specpv-exact or "
                 "+specpv-fast (default plain and all three of eagle3)")
      .Delimiter(',')
      .TypeName("MODE,...");
  command
      .AddOption("--prompts", &options->prompts,
                 "Texts to cut prompts from: JSON lines with \"prompt\", joined where they are "
                 "too short; none = the bundled books")
      .TypeName("FILE");
  AddCount(command, "--prompts-per-context", &options->prompts_per_context, 1,
           "Different prompts of each length");
  AddCount(command, "--repeats", &options->repeats, 1, "Runs of each prompt; the median counts");
  command
      .AddOption("--recall", &options->recall,
                 "Also count right answers: JSON lines with \"prompt\" and \"answer\"")
      .TypeName("FILE");
  AddCount(command, "--recall-per-length", &options->recall_per_length, 0,
           "Recall prompts of each length at most; 0 = all");
  command.AddOption("--json", &options->json, "Also write all figures to this file")
      .TypeName("FILE");
  command.SetFooter(
      "\nEvery run computes its prompt anew, which takes most of the time. Ratios are\n"
      "taken within a run: 'vs plain' to plain decoding, 'vs full' to the same drafter\n"
      "over the whole prefix. 'KV MB' is read per step, 'undone' counts tokens that a\n"
      "full pass took back, 'ms part' is the median partial step. Sequences up to\n"
      "--specpv-partial-threshold tokens are verified in full; a drafter that does not\n"
      "pay is not used unless --speculative-adaptive is false. Exit code 1: a mode that\n"
      "must give the same tokens as plain decoding does not.\n"
      "\n  talon bench longcontext --contexts 4096,30000 --budgets 2048 \\\n"
      "      --prompts books.jsonl --recall recall.jsonl --json long.json\n");
  AddSettings(command, config, kModelSettings | kSamplingSettings | kSpeculativeSettings);
  SetBody(command, body, [config, options] { return BenchLongContext(*config, *options); });
}

}  // namespace talon
