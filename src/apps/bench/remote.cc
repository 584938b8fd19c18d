// `talon bench remote`: generation with remote workers over links of several round trips.
//
// The links are relays in this process (serve/grpc/delayed_link.h), so that no right to change the
// system's network is needed; scripts/remote_netem.sh measures with the kernel's own delays.
#include "apps/bench/remote.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include "apps/bench/bench.h"
#include "apps/common/prompts.h"
#include "apps/common/table.h"
#include "apps/common/worker_child.h"
#include "apps/run_remote.h"
#include "base/file.h"
#include "base/json.h"
#include "serve/grpc/delayed_link.h"
#include "serve/grpc/rpc_server.h"
#include "serve/grpc/wire.h"
#include "setup/loader.h"
#include "setup/progress.h"

namespace talon {
namespace {

constexpr int kWarmUpTokens = 16;

struct RemoteBenchOptions {
  std::vector<double> rtts_ms = {0, 5, 20, 50, 100};
  double loss = 0.01;  // loss of one more link
  double loss_rtt_ms = 20;
  std::string prompts;
  int num_prompts = 1;
  int repeats = 2;
  std::string draft_model;
  std::string json;
};

// A draft worker whose drafts are always wrong and take their time: what the breaker is for.
class WrongDrafts : public RpcService {
 public:
  Result<std::string> Handle(const RpcCall& call) override {
    TALON_ASSIGN_OR_RETURN(const DraftCall asked, DecodeDraftCall(call.message, {}));
    DraftAnswer answer{.request_id = asked.request_id};
    for (int i = 0; i < std::max(asked.max_length, 1); ++i) {
      answer.drafts.tokens.push_back(i);  // bytes and special tokens
      answer.drafts.parents.push_back(i - 1);
      answer.drafts.probs.push_back(0.5f);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return EncodeDraftAnswer(answer, AnswerForm(asked), {});
  }
  Result<std::string> Ping() override {
    return EncodePingAnswer({.status = "SERVING", .worker_type = "draft", .model_name = "wrong"});
  }
};

struct LinkKind {
  std::string name;
  LinkDelays delays;
};

std::vector<LinkKind> LinkKinds(const RemoteBenchOptions& options) {
  const auto microseconds = [](double ms) {
    return std::chrono::microseconds(static_cast<int64_t>(1000 * ms));
  };
  std::vector<LinkKind> kinds;
  for (const double rtt : options.rtts_ms) {
    kinds.push_back({fmt::format("{:g} ms", rtt), {.round_trip = microseconds(rtt)}});
  }
  if (options.loss > 0) {
    kinds.push_back({fmt::format("{:g} ms, {:g}% loss", options.loss_rtt_ms, 100 * options.loss),
                     {.round_trip = microseconds(options.loss_rtt_ms), .loss = options.loss}});
  }
  return kinds;
}

// The workers of the measurement: the user's, or children of this process.
struct Workers {
  std::unique_ptr<WorkerChild> target_child;
  std::unique_ptr<WorkerChild> draft_child;
  WrongDrafts wrong_drafts;
  std::unique_ptr<RpcServer> wrong;
  std::string target;
  std::string draft;

  Status Start(const Config& config, const RemoteBenchOptions& options) {
    target = config.remote.target_address;
    draft = config.remote.draft_address;
    if (target.empty()) {
      std::vector<std::string> arguments = {"target-worker", "--device", config.device};
      if (!config.model.empty()) arguments.insert(arguments.end(), {"--model", config.model});
      TALON_ASSIGN_OR_RETURN(target_child, WorkerChild::Start(std::move(arguments)));
      target = target_child->address();
    }
    if (draft.empty()) {
      std::string dir = options.draft_model;
      if (dir.empty()) {
        TALON_ASSIGN_OR_RETURN(dir, BundledModelDir("tiny-draft"));
      }
      TALON_ASSIGN_OR_RETURN(draft_child, WorkerChild::Start({"draft-worker", "--model", dir}));
      draft = draft_child->address();
    }
    TALON_ASSIGN_OR_RETURN(wrong, RpcServer::Start({.kind = WorkerKind::kDraft}, &wrong_drafts));
    return OkStatus();
  }
};

enum class Mode { kPlain, kChain, kTree, kOverlap, kWrongDrafts };
constexpr Mode kModes[] = {Mode::kPlain, Mode::kChain, Mode::kTree, Mode::kOverlap,
                           Mode::kWrongDrafts};

const char* ModeName(Mode mode) {
  switch (mode) {
    case Mode::kPlain:
      return "plain";
    case Mode::kChain:
      return "chain";
    case Mode::kTree:
      return "tree";
    case Mode::kOverlap:
      return "tree with overlap";
    case Mode::kWrongDrafts:
      return "wrong drafts";
  }
  return "unknown";
}

// One mode over one link.
struct ModeRun {
  Mode mode = Mode::kPlain;
  std::unique_ptr<RemoteModel> model;
  std::string telemetry;
  std::vector<double> rates;  // tokens/s of each repeat
  bool identical = true;      // to plain remote decoding

  double Rate() const { return Median(rates); }
};

// The links of a kind, and all modes over them.
struct LinkRun {
  LinkKind kind;
  std::unique_ptr<DelayedLink> target;
  std::unique_ptr<DelayedLink> draft;
  std::unique_ptr<DelayedLink> wrong;
  std::vector<ModeRun> modes;  // as kModes

  const ModeRun& Of(Mode mode) const { return modes[static_cast<size_t>(mode)]; }
};

// What a run's telemetry says about drafting ahead.
struct OverlapFigures {
  double drafting_ms = 0;
  double hidden_ms = 0;
  double hits = 0;
  double misses = 0;

  double HiddenShare() const { return drafting_ms > 0 ? hidden_ms / drafting_ms : 0; }
  double HitRate() const { return hits + misses > 0 ? hits / (hits + misses) : 0; }
};

Result<OverlapFigures> ReadFigures(const ModeRun& run) {
  OverlapFigures figures;
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(run.telemetry));
  TALON_ASSIGN_OR_RETURN(const Json told, ParseJson(text, run.telemetry));
  for (const Json& event : told["events"]) {
    if (event["event"] != "round_verified") continue;
    figures.drafting_ms += event["fields"]["draft_rpc_ms"].get<double>();
    figures.hidden_ms += event["fields"]["overlap_savings_ms"].get<double>();
  }
  const Metrics& metrics = run.model->metrics;
  figures.hits = static_cast<double>(metrics.Get(Counter::kRemoteSpeculation, "hit"));
  figures.misses = static_cast<double>(metrics.Get(Counter::kRemoteSpeculation, "miss"));
  return figures;
}

std::string TelemetryPath(size_t link, Mode mode) {
  const auto folder = std::filesystem::temp_directory_path();
  return folder / fmt::format("talon-bench-{}-{}-{}.json", getpid(), link, static_cast<int>(mode));
}

Result<ModeRun> OpenMode(const Config& config, const LinkRun& link, Mode mode, size_t number) {
  Config settings = config;
  RemoteConfig& remote = settings.remote;
  settings.speculative.method = "REMOTE";
  remote.target_address = link.target->address();
  remote.draft_address = mode == Mode::kWrongDrafts ? link.wrong->address() : link.draft->address();
  if (mode == Mode::kPlain) remote.draft_address.clear();
  if (mode == Mode::kChain) remote.num_beams = 1;
  remote.overlap = mode == Mode::kOverlap || mode == Mode::kWrongDrafts;
  ModeRun run{.mode = mode, .telemetry = TelemetryPath(number, mode)};
  remote.telemetry = run.telemetry;
  TALON_ASSIGN_OR_RETURN(run.model, OpenRemoteModel(settings, nullptr));
  return run;
}

Result<LinkRun> OpenLink(const Config& config, const Workers& workers, const LinkKind& kind,
                         size_t number) {
  LinkRun run{.kind = kind};
  TALON_ASSIGN_OR_RETURN(run.target, DelayedLink::Open(workers.target, kind.delays));
  TALON_ASSIGN_OR_RETURN(run.draft, DelayedLink::Open(workers.draft, kind.delays));
  TALON_ASSIGN_OR_RETURN(run.wrong, DelayedLink::Open(workers.wrong->address(), kind.delays));
  for (const Mode mode : kModes) {
    TALON_ASSIGN_OR_RETURN(ModeRun opened, OpenMode(config, run, mode, number));
    run.modes.push_back(std::move(opened));
  }
  return run;
}

// All prompts once. The tokens, one list after the other.
Result<std::vector<int32_t>> RunPrompts(const Config& config, const std::vector<Prompt>& prompts,
                                        ModeRun* run) {
  std::vector<int32_t> all;
  double seconds = 0;
  for (const Prompt& prompt : prompts) {
    GenerateRequest request{.prompt = prompt.tokens};
    TALON_ASSIGN_OR_RETURN(request.sampling,
                           MakeSamplingParams(config.sampling, run->model->tokenizer.get()));
    TALON_RETURN_IF_ERROR(run->model->Check(request));
    const GenerateResult result = run->model->Generate(std::move(request));
    if (result.finish == FinishReason::kError) return result.error;
    if (result.finish == FinishReason::kTimeout) return Unavailable("a worker stays away");
    const std::vector<int32_t> tokens = result.TokenIds();
    all.insert(all.end(), tokens.begin(), tokens.end());
    seconds += result.stats.prompt_seconds + result.stats.decode_seconds;
  }
  run->rates.push_back(static_cast<double>(all.size()) / seconds);
  return all;
}

// Modes are interleaved and each comes first once, so that noise hits every mode alike.
Status MeasureLink(Config config, const std::vector<Prompt>& prompts, int repeats, LinkRun* link) {
  const StatusLine progress;
  const int max_tokens = config.sampling.max_tokens;
  for (int repeat = -1; repeat < repeats; ++repeat) {  // -1: warms up
    config.sampling.max_tokens = repeat < 0 ? std::min(kWarmUpTokens, max_tokens) : max_tokens;
    std::vector<std::vector<int32_t>> tokens(link->modes.size());
    for (size_t i = 0; i < link->modes.size(); ++i) {
      const size_t m = (i + static_cast<size_t>(repeat + 1)) % link->modes.size();
      ModeRun& run = link->modes[m];
      progress.Show(fmt::format("{}, repeat {} of {}, {}", link->kind.name, repeat + 1, repeats,
                                ModeName(run.mode)));
      auto made = RunPrompts(config, prompts, &run);
      if (!made.ok()) return made.status().WithContext(ModeName(run.mode));
      tokens[m] = std::move(*made);
    }
    for (size_t m = 0; m < link->modes.size(); ++m) {
      link->modes[m].identical &= tokens[m] == tokens[0];
      if (repeat < 0) link->modes[m].rates.clear();
    }
  }
  return OkStatus();
}

Result<Json> ReportLink(const LinkRun& link, Table* table) {
  const double plain = link.Of(Mode::kPlain).Rate();
  TALON_ASSIGN_OR_RETURN(const OverlapFigures overlap, ReadFigures(link.Of(Mode::kOverlap)));
  Json json = {{"link", link.kind.name},
               {"draft_time_hidden", overlap.HiddenShare()},
               {"hit_rate", overlap.HitRate()}};
  std::vector<std::string> row = {link.kind.name};
  bool identical = true;
  for (const ModeRun& run : link.modes) {
    const double rate = run.Rate();
    json["tokens_per_second"][ModeName(run.mode)] = rate;
    identical &= run.identical;
    row.push_back(run.mode == Mode::kPlain ? fmt::format("{:.1f}", rate)
                                           : fmt::format("{:.1f} ({:.2f}x)", rate, rate / plain));
  }
  json["identical"] = identical;
  row.push_back(fmt::format("{:.0f}%", 100 * overlap.HiddenShare()));
  row.push_back(fmt::format("{:.2f}", overlap.HitRate()));
  row.push_back(identical ? "yes" : "NO");
  table->Add(std::move(row));
  return json;
}

void RemoveTelemetry(const LinkRun& link) {
  for (const ModeRun& run : link.modes) {
    std::error_code ignored;
    std::filesystem::remove(run.telemetry, ignored);
  }
}

Result<std::vector<Prompt>> ReadPrompts(const Config& config, const RemoteBenchOptions& options) {
  std::string path = options.prompts;
  if (path.empty()) {
    TALON_ASSIGN_OR_RETURN(path, BundledFile("tests/data/prompts/docs.jsonl"));
  }
  std::string dir = config.model;
  if (dir.empty()) {
    TALON_ASSIGN_OR_RETURN(dir, BundledModelDir("tiny"));
  }
  TALON_ASSIGN_OR_RETURN(const auto tokenizer, RequireTokenizer(dir));
  const PromptReader reader{.tokenizer = tokenizer.get(), .vocab_size = tokenizer->vocab_size()};
  TALON_ASSIGN_OR_RETURN(std::vector<Prompt> prompts, reader.Read(path));
  prompts.resize(std::min<size_t>(prompts.size(), static_cast<size_t>(options.num_prompts)));
  return prompts;
}

Result<int> BenchRemote(Config config, const RemoteBenchOptions& options) {
  config.sampling.ignore_eos = true;
  TALON_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, ReadPrompts(config, options));
  Workers workers;
  TALON_RETURN_IF_ERROR(workers.Start(config, options));
  Table table({"round trip", "plain", "chain", "tree", "overlap", "wrong drafts", "hidden",
               "hit rate", "identical"});
  Json links = Json::array();
  bool identical = true;
  const std::vector<LinkKind> kinds = LinkKinds(options);
  for (size_t i = 0; i < kinds.size(); ++i) {
    TALON_ASSIGN_OR_RETURN(LinkRun link, OpenLink(config, workers, kinds[i], i));
    const Status status = MeasureLink(config, prompts, options.repeats, &link);
    const Result<Json> json = status.ok() ? ReportLink(link, &table) : Result<Json>(status);
    RemoveTelemetry(link);
    if (!json.ok()) return json.status().WithContext(kinds[i].name);
    identical &= (*json)["identical"].get<bool>();
    links.push_back(*json);
  }
  std::printf("%zu prompts, %d tokens each, medians of %d; tokens/s (against plain)\n%s",
              prompts.size(), config.sampling.max_tokens, options.repeats,
              table.ToString().c_str());
  std::printf(
      "hidden: share of the drafting time that verification covers, with overlap. wrong drafts:\n"
      "a drafter that is never right. Draft length control and breaker are on unless told\n"
      "otherwise.\n");
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"links", links}}));
  return identical ? kExitOk : kExitFailed;
}

}  // namespace

void AddBenchRemote(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<RemoteBenchOptions>();
  Command command = bench.AddSubcommand(
      "remote", "Remote workers over links of several round trips: plain, chain, tree, overlap");
  command.AddOption("--rtts-ms", &options->rtts_ms, "Round trips, separated by commas")
      .Delimiter(',')
      .DefaultText("0,5,20,50,100")
      .Range(0.0, 10000.0);
  command.AddOption("--loss", &options->loss, "Share of segments lost by one more link; 0 = none")
      .Default(options->loss)
      .Range(0.0, 0.5);
  command.AddOption("--loss-rtt-ms", &options->loss_rtt_ms, "Round trip of that link")
      .Default(options->loss_rtt_ms)
      .Range(0.0, 10000.0);
  command.AddOption("--prompts", &options->prompts,
                    "JSON lines with \"prompt\" (default: the bundled documents)");
  command.AddOption("--num-prompts", &options->num_prompts, "Of these the first")
      .Default(options->num_prompts)
      .Range(1, 1000);
  command.AddOption("--repeats", &options->repeats, "Runs of each mode")
      .Default(options->repeats)
      .Range(1, 100);
  command.AddOption("--draft-model", &options->draft_model,
                    "Of the draft worker that is started (default: the bundled one)");
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config,
              kModelSettings | kSamplingSettings | kRemoteSettings | kTargetSettings);
  command.SetFooter(
      "\nWorkers are started by this command, or are those at --target-address and\n"
      "--draft-address.\n"
      "\nExample:\n"
      "  talon bench remote --max-tokens 64 --rtts-ms 0,20,100\n");
  SetBody(command, body, [config, options] { return BenchRemote(*config, *options); });
}

}  // namespace talon
