// `talon bench decode`: tokens per second for prompt and generation, against the memory limit.
#include <cstdio>

#include "apps/bench.h"
#include "apps/loader.h"
#include "apps/roofline.h"
#include "apps/table.h"
#include "base/clock.h"
#include "base/threads.h"
#include "compute/peaks.h"

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

Result<int> BenchDecode(Config config, const DecodeOptions& options) {
  if (!options.modes.modes.empty() || !options.modes.prompts.empty()) {
    if (options.modes.prompts.empty() || options.modes.modes.empty()) {
      return InvalidArgument("--prompts FILE.jsonl and --modes plain,... go together");
    }
    return BenchModes(config, options.modes);
  }
  config.max_sequences = 1;
  config.enable_prefix_cache = false;  // prompts are run again and again
  if (config.prefill_chunk < options.prompt_tokens) config.prefill_chunk = options.prompt_tokens;
  const int generated = config.sampling.max_tokens;
  TALON_ASSIGN_OR_RETURN(const auto model, LoadModel(config, options.shape));
  model->engine_options.kv_tokens = options.prompt_tokens + generated + 1;
  TALON_ASSIGN_OR_RETURN(const auto engine, MakeEngine(model.get(), config, "NONE"));
  ThreadPool pool(config.threads);
  const int vocabulary = model->target->config().vocab_size;
  int64_t peak_memory = 0;
  std::vector<double> prompt_rate, decode_rate, bandwidth, int8_peak, bf16_peak;
  for (int i = 0; i <= options.modes.repeats; ++i) {
    TALON_ASSIGN_OR_RETURN(const GenerateResult result,
                           Generate(engine.get(), vocabulary, options.prompt_tokens, generated));
    if (i == 0) {  // warm-up; the measurement of the bandwidth needs memory of its own, later
      peak_memory = PeakMemoryBytes();
      continue;
    }
    prompt_rate.push_back((options.prompt_tokens - 1) / result.stats.prompt_seconds);
    decode_rate.push_back(generated / result.stats.decode_seconds);
    bandwidth.push_back(MeasureReadBandwidth(pool));
    int8_peak.push_back(MeasureMatrixPeak(pool, MatrixKind::kInt8));
    bf16_peak.push_back(MeasureMatrixPeak(pool, MatrixKind::kBF16));
  }
  const double context = options.prompt_tokens + generated / 2.0;
  const double bytes = BytesPerToken(*model, engine.get(), context);
  const double flops =
      PromptFlops(model->target->config(), options.prompt_tokens - 1) / (options.prompt_tokens - 1);
  const double read = bytes * Median(decode_rate) / 1e9;
  const double prompt_gflops = flops * Median(prompt_rate) / 1e9;
  Table table({"", "tokens/s", "per token", "rate", "peak", "share"});
  table.Add({fmt::format("prompt {}", options.prompt_tokens),
             fmt::format("{:.1f}", Median(prompt_rate)), fmt::format("{:.1f} MFLOP", flops / 1e6),
             fmt::format("{:.0f} GFLOP/s", prompt_gflops),
             fmt::format("int8 {:.0f}", Median(int8_peak)),
             fmt::format("{:.0f}%", 100 * prompt_gflops / Median(int8_peak))});
  table.Add({"", "", "", "", fmt::format("bf16 {:.0f}", Median(bf16_peak)),
             fmt::format("{:.0f}%", 100 * prompt_gflops / Median(bf16_peak))});
  table.Add({fmt::format("generation {}", generated), fmt::format("{:.1f}", Median(decode_rate)),
             FormatBytes(bytes), fmt::format("{:.1f} GB/s", read),
             fmt::format("{:.1f} GB/s", Median(bandwidth)),
             fmt::format("{:.0f}%", 100 * read / Median(bandwidth))});
  std::printf("%s\n%s, weights %s, %s\n%s", model->name.c_str(),
              model->backend->description().c_str(), config.weights.c_str(),
              fmt::format("median of {} runs", options.modes.repeats).c_str(),
              table.ToString().c_str());
  std::printf("memory: weights %s + KV %s + workspace %s; peak of the process %s\n",
              FormatBytes(static_cast<double>(model->target->weight_bytes())).c_str(),
              FormatBytes(static_cast<double>(engine->kv().bytes())).c_str(),
              FormatBytes(static_cast<double>(model->target->workspace_bytes())).c_str(),
              FormatBytes(static_cast<double>(peak_memory)).c_str());
  const Json json = {{"model", model->name},
                     {"weights", config.weights},
                     {"device", model->backend->description()},
                     {"prompt_tokens_per_second", Median(prompt_rate)},
                     {"prompt_gflops", prompt_gflops},
                     {"int8_peak_gops", Median(int8_peak)},
                     {"bf16_peak_gflops", Median(bf16_peak)},
                     {"generation_tokens_per_second", Median(decode_rate)},
                     {"bytes_per_token", bytes},
                     {"read_gb_per_second", read},
                     {"bandwidth_gb_per_second", Median(bandwidth)},
                     {"bandwidth_share", read / Median(bandwidth)},
                     {"peak_memory_bytes", peak_memory}};
  TALON_RETURN_IF_ERROR(SaveJson(options.modes.json, json));
  return kExitOk;
}

}  // namespace

void AddBenchDecode(CLI::App* bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<DecodeOptions>();
  CLI::App* command = bench->add_subcommand(
      "decode", "Tokens/s of prompt and generation, bytes per token, share of the bandwidth");
  command->add_option("--shape", options->shape,
                      "Random weights of this shape instead of a model: llama-1b, tiny");
  command->add_option("--prompt-tokens", options->prompt_tokens, "Length of the prompt")
      ->default_val(options->prompt_tokens)
      ->check(CLI::Range(2, 16384));
  command->add_option("--repeats", options->modes.repeats, "Timed runs; the median counts")
      ->default_val(options->modes.repeats)
      ->check(CLI::Range(1, 1000));
  command->add_option("--json", options->modes.json, "Also write the figures to this file");
  command->add_option("--prompts", options->modes.prompts,
                      "Compare modes on these prompts: JSON lines with \"prompt\"");
  command
      ->add_option("--modes", options->modes.modes,
                   "plain first, then drafters: plain,ngram,suffix,standalone,eagle3,merged")
      ->delimiter(',');
  AddSettings(command, config, kModelSettings | kSamplingSettings | kSpeculativeSettings);
  SetBody(command, body, [config, options] { return BenchDecode(*config, *options); });
}

}  // namespace talon
