// `talon bench nwor`: what no-write-on-reject writes and costs, by batch, tree and acceptance.
//
// direct     tree rows go to slots at once, and accepted ones move into place
// nwor       tree rows go to staging, and accepted ones are copied to slots
// nwor+scv   the same with trees verified in chunks
#include <algorithm>
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/math.h"
#include "setup/loader.h"
#include "setup/progress.h"

namespace talon {
namespace {

constexpr int kPromptTokens = 32;

struct NworOptions {
  std::vector<int> batches = {1, 4};
  std::vector<int> nodes = {8, 32};
  std::vector<double> acceptances = {0, 0.3, 0.7, 1};
  std::vector<std::string> modes = {"direct", "nwor", "nwor+scv"};
  int chunk = 8;
  int tokens = 96;
  int repeats = 3;
  std::string json;
};

// Trees of which the target accepts a given share: so many nodes continue the known answer, and the
// others are wrong siblings of these.
class ShareDrafter : public Drafter {
 public:
  ShareDrafter(const std::vector<std::vector<int32_t>>& answers, int vocab_size, double share)
      : answers_(answers), vocab_size_(vocab_size), share_(share) {}

  std::string_view name() const override { return "SHARE"; }
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto answer = std::ranges::find_if(answers_, [&](const std::vector<int32_t>& one) {
        const std::span<const int32_t> tokens = requests[i].tokens;
        return one.size() > tokens.size() && std::equal(tokens.begin(), tokens.end(), one.begin());
      });
      if (answer != answers_.end()) Grow(requests[i], *answer, &trees[i]);
    }
  }
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int) override {}
  void End(SequenceId) override {}

 private:
  void Grow(const DraftRequest& request, const std::vector<int32_t>& answer, TokenTree* tree) {
    const size_t known = request.tokens.size();
    const int drafts = std::min(request.budget.max_nodes - 1, request.budget.max_depth);
    // What is lost to rounding in one tree is made up for in the next.
    owed_ += share_ * drafts;
    const int right = std::min(static_cast<int>(owed_ + 1e-9), drafts);
    owed_ -= right;
    const int levels = std::min(right + 1, drafts);
    int wrong = drafts - right;
    for (int level = 0, tip = 0; level < levels; ++level) {
      const int32_t token = answer[known + level];
      const int siblings = CeilDiv(wrong, levels - level);
      for (int i = 1; i <= siblings; ++i) tree->Add(tip, (token + i) % vocab_size_, 0.1f);
      wrong -= siblings;
      if (level < right) tip = tree->Add(tip, token, 0.9f);
    }
    *tree = CanonicalTree(*tree);
  }

  const std::vector<std::vector<int32_t>>& answers_;  // prompt and output of each sequence
  int vocab_size_;
  double share_;
  double owed_ = 0;
};

// One place of the grid.
struct Point {
  int batch = 1;
  int nodes = 8;
  double acceptance = 0;
};

// What a mode did there. Bytes and tokens are the same in every repeat.
struct ModeRun {
  std::string mode;
  int64_t tokens = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t block_bytes = 0;
  int64_t staged_bytes = 0;
  std::vector<double> seconds;

  double Fastest() const { return *std::ranges::min_element(seconds); }
  double all_bytes() const { return static_cast<double>(block_bytes + staged_bytes); }
};

std::vector<int32_t> PromptOf(int sequence, int vocab_size) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < kPromptTokens; ++i) {
    prompt.push_back((i * 7919 + 11 + sequence * 31) % vocab_size);
  }
  return prompt;
}

// Prompts and what plain decoding answers, which needs no trees.
Result<std::vector<std::vector<int32_t>>> AnswersOf(LoadedModel* model, int count, int tokens) {
  TALON_ASSIGN_OR_RETURN(const auto engine, Engine::Create({.backend = model->backend.get(),
                                                            .target = model->target.get()},
                                                           model->engine_options));
  std::vector<std::vector<int32_t>> answers;
  for (int i = 0; i < count; ++i) {
    GenerateRequest request{.prompt = PromptOf(i, model->target->config().vocab_size)};
    request.sampling.max_tokens = tokens;
    request.sampling.ignore_eos = true;
    answers.push_back(request.prompt);
    TALON_ASSIGN_OR_RETURN(const GenerateResult result, engine->Generate(std::move(request)));
    for (const int32_t id : result.TokenIds()) answers.back().push_back(id);
  }
  return answers;
}

class NworBench {
 public:
  NworBench(LoadedModel* model, const NworOptions& options,
            const std::vector<std::vector<int32_t>>& answers)
      : model_(model), options_(options), answers_(answers) {}

  // All modes at one point, taken in turn.
  Result<std::vector<ModeRun>> Measure(const Point& point) {
    std::vector<ModeRun> runs;
    for (const std::string& mode : options_.modes) runs.push_back({.mode = mode});
    const StatusLine progress;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      for (ModeRun& run : runs) {
        progress.Show(fmt::format("batch {}, {} nodes, acceptance {:.1f}, {}, run {}", point.batch,
                                  point.nodes, point.acceptance, run.mode, repeat + 1));
        TALON_RETURN_IF_ERROR(RunOnce(point, &run));
      }
    }
    return runs;
  }

 private:
  Result<std::unique_ptr<Engine>> NewEngine(const Point& point, const std::string& mode) const {
    EngineOptions options = model_->engine_options;
    options.max_sequences = point.batch;
    options.step.budget = {.max_nodes = point.nodes, .max_depth = point.nodes - 1};
    options.step.nwor = mode != "direct";
    options.step.scv_chunk_size = mode == "nwor+scv" ? options_.chunk : 0;
    return Engine::Create({.backend = model_->backend.get(),
                           .target = model_->target.get(),
                           .drafter = std::make_unique<ShareDrafter>(
                               answers_, model_->target->config().vocab_size, point.acceptance)},
                          options);
  }

  Status RunOnce(const Point& point, ModeRun* run) const {
    TALON_ASSIGN_OR_RETURN(const auto engine, NewEngine(point, run->mode));
    std::vector<RequestId> ids;
    for (int i = 0; i < point.batch; ++i) {
      GenerateRequest request{.prompt = PromptOf(i, model_->target->config().vocab_size)};
      request.sampling.max_tokens = options_.tokens;
      request.sampling.ignore_eos = true;
      TALON_ASSIGN_OR_RETURN(const RequestId id, engine->Submit(std::move(request)));
      ids.push_back(id);
    }
    engine->RunStep();  // all prompts, and nothing else
    const Metrics& metrics = engine->metrics();
    const int64_t prompts = metrics.Total(Counter::kKvBytesWritten);
    const Stopwatch watch;
    while (engine->HasWork()) engine->RunStep();
    model_->backend->Synchronize();
    run->seconds.push_back(watch.Seconds());
    run->block_bytes = metrics.Total(Counter::kKvBytesWritten) - prompts;
    run->staged_bytes = metrics.Total(Counter::kKvBytesStaged);
    run->tokens = run->drafted = run->accepted = 0;
    for (size_t i = 0; i < ids.size(); ++i) TALON_RETURN_IF_ERROR(Count(engine.get(), ids[i], run));
    return OkStatus();
  }

  Status Count(Engine* engine, RequestId id, ModeRun* run) const {
    TALON_ASSIGN_OR_RETURN(const GenerateResult result, engine->Take(id));
    if (result.finish == FinishReason::kError) return result.error;
    const std::vector<int32_t> tokens = result.TokenIds();
    const bool same = std::ranges::any_of(answers_, [&](const std::vector<int32_t>& answer) {
      return std::ranges::equal(tokens, std::span(answer).subspan(kPromptTokens));
    });
    if (!same) return Internal("{}: other tokens than plain decoding", run->mode);
    run->tokens += static_cast<int64_t>(tokens.size());
    run->drafted += result.stats.drafted;
    run->accepted += result.stats.accepted;
    return OkStatus();
  }

  LoadedModel* model_;
  const NworOptions& options_;
  const std::vector<std::vector<int32_t>>& answers_;
};

Json RowJson(const Point& point, const ModeRun& run, const ModeRun& first) {
  const auto tokens = static_cast<double>(run.tokens);
  const double seconds = run.Fastest();
  return {{"batch", point.batch},
          {"nodes", point.nodes},
          {"acceptance", point.acceptance},
          {"mode", run.mode},
          {"reached", static_cast<double>(run.accepted) /
                          static_cast<double>(std::max<int64_t>(run.drafted, 1))},
          {"block_bytes_per_token", static_cast<double>(run.block_bytes) / tokens},
          {"bytes_per_token", run.all_bytes() / tokens},
          {"bytes_per_second", run.all_bytes() / seconds},
          {"ms_per_token", seconds / tokens * 1e3},
          {"block_bytes_ratio",
           static_cast<double>(run.block_bytes) / static_cast<double>(first.block_bytes)},
          {"bytes_ratio", run.all_bytes() / first.all_bytes()},
          {"time_ratio", seconds / first.Fastest()}};
}

std::string NworTable(const Json& rows) {
  Table table({"batch", "T", "acc.", "mode", "blocks", "", "in all", "", "MB/s", "ms", "time"});
  const auto change = [](double ratio) { return fmt::format("{:+.0f}%", 100 * (ratio - 1)); };
  for (const Json& row : rows) {
    const bool first = row["mode"] == rows[0]["mode"];
    table.Add({first ? fmt::format("{}", row["batch"].get<int>()) : "",
               first ? fmt::format("{}", row["nodes"].get<int>()) : "",
               fmt::format("{:.2f}", row["reached"].get<double>()), row["mode"].get<std::string>(),
               FormatBytes(row["block_bytes_per_token"].get<double>()),
               first ? "" : change(row["block_bytes_ratio"].get<double>()),
               FormatBytes(row["bytes_per_token"].get<double>()),
               first ? "" : change(row["bytes_ratio"].get<double>()),
               fmt::format("{:.1f}", row["bytes_per_second"].get<double>() / 1e6),
               fmt::format("{:.2f}", row["ms_per_token"].get<double>()),
               first ? "" : fmt::format("{:.2f}x", row["time_ratio"].get<double>())});
  }
  return table.ToString();
}

Result<std::unique_ptr<LoadedModel>> LoadFor(Config config, const NworOptions& options) {
  const int batch = *std::ranges::max_element(options.batches);
  const int nodes = *std::ranges::max_element(options.nodes);
  config.max_sequences = batch;
  config.enable_prefix_cache = false;  // prompts are run again and again
  config.max_length = kPromptTokens + options.tokens + 1;
  config.prefill_chunk = std::max(config.prefill_chunk, batch * kPromptTokens);
  config.speculative.num_draft_tokens = nodes;
  config.speculative.specpv.values.enabled = false;
  return LoadTarget(config, "", batch * nodes);
}

Result<int> BenchNwor(const Config& config, const NworOptions& options) {
  TALON_ASSIGN_OR_RETURN(const auto model, LoadFor(config, options));
  TALON_ASSIGN_OR_RETURN(
      const auto answers,
      AnswersOf(model.get(), *std::ranges::max_element(options.batches), options.tokens));
  NworBench bench(model.get(), options, answers);
  Json rows = Json::array();
  for (const int batch : options.batches) {
    for (const int nodes : options.nodes) {
      for (const double acceptance : options.acceptances) {
        const Point point{.batch = batch, .nodes = nodes, .acceptance = acceptance};
        TALON_ASSIGN_OR_RETURN(const auto runs, bench.Measure(point));
        for (const ModeRun& run : runs) rows.push_back(RowJson(point, run, runs[0]));
      }
    }
  }
  std::printf(
      "%s, weights %s, KV %s\n%s\n"
      "K and V written for each new token, to blocks and in all (with staging), their\n"
      "bandwidth, and milliseconds per token; T: nodes of a tree, acc.: accepted share\n"
      "of the drafts verified; changes are against %s, times fastest of %d\n%s",
      model->name.c_str(), config.weights.c_str(), config.kv_dtype.c_str(),
      model->backend->info().description.c_str(), options.modes[0].c_str(), options.repeats,
      NworTable(rows).c_str());
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"model", model->name},
                                                {"device", model->backend->info().description},
                                                {"weights", config.weights},
                                                {"kv_dtype", config.kv_dtype},
                                                {"chunk", options.chunk},
                                                {"tokens", options.tokens},
                                                {"rows", rows}}));
  return kExitOk;
}

}  // namespace

void AddBenchNwor(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<NworOptions>();
  Command command = bench.AddSubcommand(
      "nwor", "Bytes that no-write-on-reject keeps out of KV blocks, and its time");
  command.AddOption("--batches", &options->batches, "Sequences at once (default 1,4)")
      .Delimiter(',')
      .Range(1, 256)
      .TypeName("N,...");
  command.AddOption("--nodes", &options->nodes, "Nodes of a tree, root included (default 8,32)")
      .Delimiter(',')
      .Range(2, 256)
      .TypeName("N,...");
  command
      .AddOption("--acceptances", &options->acceptances,
                 "Accepted shares of the drafts (default 0,0.3,0.7,1)")
      .Delimiter(',')
      .Range(0.0, 1.0)
      .TypeName("X,...");
  command
      .AddOption("--modes", &options->modes,
                 "Of direct, nwor, nwor+scv, in this order (default all)")
      .Delimiter(',')
      .OneOf({"direct", "nwor", "nwor+scv"})
      .TypeName("MODE,...");
  command.AddOption("--chunk-size", &options->chunk, "Nodes of a chunk of nwor+scv")
      .Default(options->chunk)
      .Range(1, 256);
  command.AddOption("--tokens", &options->tokens, "New tokens of each sequence")
      .Default(options->tokens)
      .Range(2, 4096);
  command.AddOption("--repeats", &options->repeats, "Timed runs; the fastest counts")
      .Default(options->repeats)
      .Range(1, 1000);
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings);
  SetBody(command, body, [config, options] { return BenchNwor(*config, *options); });
}

}  // namespace talon
