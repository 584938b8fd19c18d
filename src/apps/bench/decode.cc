// `talon bench decode`: tokens per second for prompt and generation, against the memory limit.
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/bench/roofline.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/threads.h"
#include "compute/cpu/peaks.h"
#include "compute/cuda/cuda_backend.h"
#include "setup/loader.h"

namespace talon {
namespace {

struct DecodeOptions {
  std::string shape;
  int prompt_tokens = 512;
  ModesOptions modes;  // repeats and json serve both kinds of run
};

// Bytes one decode pass must read at this context: all matrices once, and the K/V of the prefix.
double BytesPerToken(const LoadedModel& model, Engine* engine, double context) {
  return static_cast<double>(model.target->weight_bytes_per_pass()) +
         context * static_cast<double>(engine->kv().shape().BytesPerToken());
}

// Multiply-adds of a prompt of n tokens, times two: matrices (the head runs for no prompt row) and
// causal attention.
double PromptFlops(const ModelConfig& m, double n) {
  return n * (LayerFlops(m) + AttentionFlops(m, n / 2));
}

Result<GenerateResult> Generate(Engine* engine, int vocabulary, int prompt, int generated) {
  GenerateRequest request;
  for (int i = 0; i < prompt; ++i) request.prompt.push_back((i * 7919 + 11) % vocabulary);
  request.sampling.max_tokens = generated;
  request.sampling.ignore_eos = true;
  return engine->Generate(std::move(request));
}

// What the timed runs gave, and the machine's limits, measured beside each of them.
struct DecodeRuns {
  std::vector<double> prompt_rate, decode_rate;         // tokens per second
  std::vector<double> first_token;                      // seconds
  std::vector<double> bandwidth, int8_peak, bf16_peak;  // GB/s, G(FL)OP/s
  int64_t peak_memory = 0;                              // peak of the process, in bytes
};

// The medians, against the limits.
struct DecodeFigures {
  double prompt_rate = 0, decode_rate = 0, first_token = 0;
  double bandwidth = 0, int8_peak = 0, bf16_peak = 0;  // 0: not measured on this device
  double flops = 0;                                    // for a prompt token
  double bytes = 0;                                    // read for a generated token
  double prompt_gflops = 0;                            // GFLOP/s
  double read = 0;                                     // GB/s
};

Result<DecodeRuns> RunDecode(const Config& config, const DecodeOptions& options,
                             const LoadedModel& model, Engine* engine) {
  ThreadPool pool(config.threads);
  const int generated = config.sampling.max_tokens;
  DecodeRuns runs;
  for (int i = 0; i <= options.modes.repeats; ++i) {
    TALON_ASSIGN_OR_RETURN(
        const GenerateResult result,
        Generate(engine, model.target->config().vocab_size, options.prompt_tokens, generated));
    if (i == 0) {  // warm-up; the measurement of the bandwidth needs memory of its own, later
      runs.peak_memory = PeakMemoryBytes();
      continue;
    }
    runs.prompt_rate.push_back((options.prompt_tokens - 1) / result.stats.prompt_seconds);
    runs.decode_rate.push_back(generated / result.stats.decode_seconds);
    runs.first_token.push_back(result.stats.first_token_seconds);
    TALON_ASSIGN_OR_RETURN(const double bandwidth,
                           MeasureDeviceBandwidth(model.backend.get(), &pool));
    runs.bandwidth.push_back(bandwidth * 1e-9);
    if (model.backend->info().name != "cpu") {
      TALON_ASSIGN_OR_RETURN(const double peak, MeasureCudaMatrixPeak(model.backend.get()));
      runs.bf16_peak.push_back(peak * 1e-9);
      continue;
    }
    runs.int8_peak.push_back(MeasureMatrixPeak(pool, MatrixKind::kInt8));
    runs.bf16_peak.push_back(MeasureMatrixPeak(pool, MatrixKind::kBF16));
  }
  return runs;
}

DecodeFigures FiguresOf(const DecodeRuns& runs, const LoadedModel& model, Engine* engine,
                        int prompt_tokens, int generated) {
  DecodeFigures figures{.prompt_rate = Median(runs.prompt_rate),
                        .decode_rate = Median(runs.decode_rate),
                        .first_token = Median(runs.first_token),
                        .bandwidth = Median(runs.bandwidth),
                        .int8_peak = Median(runs.int8_peak),
                        .bf16_peak = Median(runs.bf16_peak)};
  figures.flops = PromptFlops(model.target->config(), prompt_tokens - 1) / (prompt_tokens - 1);
  figures.bytes = BytesPerToken(model, engine, prompt_tokens + generated / 2.0);
  figures.prompt_gflops = figures.flops * figures.prompt_rate / 1e9;
  figures.read = figures.bytes * figures.decode_rate / 1e9;
  return figures;
}

std::string Share(double part, double whole) { return fmt::format("{:.0f}%", 100 * part / whole); }

// A peak and the share of it that was reached.
std::vector<std::string> AgainstPeak(const char* name, double rate, double peak) {
  if (peak == 0) return {"not measured here", "-"};
  return {fmt::format("{} {:.0f}", name, peak), Share(rate, peak)};
}

Table TableOf(const DecodeFigures& figures, int prompt_tokens, int generated) {
  Table table({"", "tokens/s", "per token", "rate", "peak", "share"});
  const auto int8 = AgainstPeak("int8", figures.prompt_gflops, figures.int8_peak);
  const auto bf16 = AgainstPeak("bf16", figures.prompt_gflops, figures.bf16_peak);
  const bool has_int8 = figures.int8_peak > 0;
  const auto& first = has_int8 ? int8 : bf16;
  table.Add({fmt::format("prompt {}", prompt_tokens), fmt::format("{:.1f}", figures.prompt_rate),
             fmt::format("{:.1f} MFLOP", figures.flops / 1e6),
             fmt::format("{:.0f} GFLOP/s", figures.prompt_gflops), first[0], first[1]});
  if (has_int8 && figures.bf16_peak > 0) table.Add({"", "", "", "", bf16[0], bf16[1]});
  table.Add({fmt::format("generation {}", generated), fmt::format("{:.1f}", figures.decode_rate),
             FormatBytes(figures.bytes), fmt::format("{:.1f} GB/s", figures.read),
             fmt::format("{:.1f} GB/s", figures.bandwidth),
             Share(figures.read, figures.bandwidth)});
  return table;
}

void PrintMemory(const LoadedModel& model, Engine* engine, int64_t peak_memory) {
  std::printf("memory: weights %s + KV %s + workspace %s; peak of the process %s\n",
              FormatBytes(static_cast<double>(model.target->weight_bytes())).c_str(),
              FormatBytes(static_cast<double>(engine->kv().bytes())).c_str(),
              FormatBytes(static_cast<double>(model.target->workspace_bytes())).c_str(),
              FormatBytes(static_cast<double>(peak_memory)).c_str());
}

Result<int> BenchRandomPrompt(Config config, const DecodeOptions& options) {
  config.max_sequences = 1;
  config.enable_prefix_cache = false;  // prompts are run again and again
  const int generated = config.sampling.max_tokens;
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config, options.shape));
  model->engine_options.kv_tokens = options.prompt_tokens + generated + 1;
  TALON_ASSIGN_OR_RETURN(const auto engine, MakeEngine(model.get(), config, DrafterList()));
  TALON_ASSIGN_OR_RETURN(const DecodeRuns runs, RunDecode(config, options, *model, engine.get()));
  const DecodeFigures figures =
      FiguresOf(runs, *model, engine.get(), options.prompt_tokens, generated);
  std::printf("%s\n%s, weights %s, median of %d runs\n%s", model->name.c_str(),
              model->backend->info().description.c_str(), config.weights.c_str(),
              options.modes.repeats,
              TableOf(figures, options.prompt_tokens, generated).ToString().c_str());
  std::printf("first token after %.1f ms\n", figures.first_token * 1e3);
  PrintMemory(*model, engine.get(), runs.peak_memory);
  const auto measured = [](double peak) { return peak == 0 ? Json() : Json(peak); };
  const Json json = {{"model", model->name},
                     {"weights", config.weights},
                     {"device", model->backend->info().description},
                     {"prompt_tokens", options.prompt_tokens},
                     {"prompt_tokens_per_second", figures.prompt_rate},
                     {"first_token_seconds", figures.first_token},
                     {"prompt_gflops", figures.prompt_gflops},
                     {"int8_peak_gops", measured(figures.int8_peak)},
                     {"bf16_peak_gflops", measured(figures.bf16_peak)},
                     {"generation_tokens_per_second", figures.decode_rate},
                     {"bytes_per_token", figures.bytes},
                     {"read_gb_per_second", figures.read},
                     {"bandwidth_gb_per_second", figures.bandwidth},
                     {"bandwidth_share", figures.read / figures.bandwidth},
                     {"peak_memory_bytes", runs.peak_memory}};
  TALON_RETURN_IF_ERROR(SaveJson(options.modes.json, json));
  return kExitOk;
}

Result<int> BenchDecode(const Config& config, const DecodeOptions& options) {
  const ModesOptions& modes = options.modes;
  if (modes.modes.empty() && modes.prompts.empty()) return BenchRandomPrompt(config, options);
  if (modes.prompts.empty() || modes.modes.empty()) {
    return InvalidArgument("--prompts FILE.jsonl and --modes plain,... go together");
  }
  return BenchModes(config, modes);
}

}  // namespace

void AddBenchDecode(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<DecodeOptions>();
  Command command = bench.AddSubcommand(
      "decode", "Tokens/s of prompt and generation, bytes per token, share of the bandwidth");
  command.AddOption("--shape", &options->shape,
                    "Random weights of this shape instead of a model: " + ShapeNames());
  command.AddOption("--prompt-tokens", &options->prompt_tokens, "Length of the prompt")
      .Default(options->prompt_tokens)
      .Range(2, 131072);
  command.AddOption("--repeats", &options->modes.repeats, "Timed runs; the median counts")
      .Default(options->modes.repeats)
      .Range(1, 1000);
  command.AddOption("--json", &options->modes.json, "Also write the figures to this file");
  command.AddOption("--prompts", &options->modes.prompts,
                    "Compare modes on these prompts: JSON lines with \"prompt\"");
  command
      .AddOption("--modes", &options->modes.modes,
                 "plain first, then drafters: plain,ngram,suffix,standalone,eagle3,merged")
      .Delimiter(',');
  AddSettings(command, config, kModelSettings | kSamplingSettings | kSpeculativeSettings);
  SetBody(command, body, [config, options] { return BenchDecode(*config, *options); });
}

}  // namespace talon
