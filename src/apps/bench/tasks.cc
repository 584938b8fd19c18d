// `talon bench tasks`: how many answers are right, by kind of task.
#include <algorithm>
#include <cstdio>
#include <map>

#include "apps/bench/bench.h"
#include "apps/bench/task_items.h"
#include "apps/common/run_report.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/clock.h"
#include "setup/chat.h"
#include "setup/loader.h"
#include "setup/progress.h"
#include "text/chat_options.h"

namespace talon {
namespace {

struct TasksOptions {
  std::string tasks;
  std::vector<std::string> kinds;
  int limit = 0;
  bool wrong = false;
  std::string json;
};

// What the items of one kind came to.
struct KindResult {
  int items = 0;
  int right = 0;
  int64_t tokens = 0;
  double seconds = 0;
  RequestStats stats;

  void Add(const KindResult& more) {
    items += more.items;
    right += more.right;
    tokens += more.tokens;
    seconds += more.seconds;
    AddStats(more.stats, &stats);
  }
};

// A model and its chat, with the requests of all items.
struct TaskBench {
  Config config;
  std::unique_ptr<LoadedModel> model;
  std::optional<Chat> chat;
  std::unique_ptr<Engine> engine;
  SamplingParams sampling;
};

Result<GenerateRequest> RequestFor(const TaskBench& bench, const TaskItem& item) {
  TALON_ASSIGN_OR_RETURN(GenerateRequest request,
                         ChatRequest(*bench.chat, *bench.model->tokenizer, item.messages,
                                     bench.sampling, {.tools = item.tools}));
  request.sampling.max_tokens = item.max_tokens;
  return request;
}

Json AnswerJson(const TaskItem& item, const GenerateResult& result, bool right) {
  return {{"id", item.id}, {"kind", item.kind}, {"right", right}, {"text", result.text}};
}

// Runs all items of a kind at once, as far as the engine takes them.
Result<KindResult> RunKind(const TaskBench& bench, const std::vector<const TaskItem*>& items,
                           bool show_wrong, Json* answers) {
  std::vector<RequestId> ids;
  for (const TaskItem* item : items) {
    auto request = RequestFor(bench, *item);
    if (!request.ok()) return request.status().WithContext(item->id);
    auto id = bench.engine->Submit(std::move(*request));
    if (!id.ok()) return id.status().WithContext(item->id);
    ids.push_back(*id);
  }
  KindResult kind;
  const Stopwatch watch;
  while (bench.engine->HasWork()) bench.engine->RunStep();
  kind.seconds = watch.Seconds();
  for (size_t i = 0; i < items.size(); ++i) {
    TALON_ASSIGN_OR_RETURN(const GenerateResult result, bench.engine->Take(ids[i]));
    if (result.finish == FinishReason::kError) return result.error.WithContext(items[i]->id);
    const std::vector<int32_t> tokens = result.TokenIds();
    const bool right = IsRight(
        *items[i], {.text = result.text, .tokens = tokens, .format = bench.chat->tool_format});
    kind.Add({.items = 1,
              .right = right ? 1 : 0,
              .tokens = static_cast<int64_t>(tokens.size()),
              .stats = result.stats});
    answers->push_back(AnswerJson(*items[i], result, right));
    if (show_wrong && !right) {
      std::printf("%s\n  expected %s\n  answered %s\n", items[i]->id.c_str(),
                  items[i]->expected.dump().c_str(), Json(result.text).dump().c_str());
    }
  }
  return kind;
}

double PerSecond(const KindResult& kind) {
  return static_cast<double>(kind.tokens) / std::max(kind.seconds, 1e-9);
}

Json KindJson(const std::string& name, const KindResult& kind) {
  return {{"kind", name},
          {"items", kind.items},
          {"right", kind.right},
          {"accuracy", static_cast<double>(kind.right) / kind.items},
          {"tokens", kind.tokens},
          {"tau", kind.stats.tau()},
          {"tokens_per_second", PerSecond(kind)}};
}

// Null without partial verification.
Json SpecPvJson(const Engine& engine) {
  const SpecPvConfig& specpv = engine.options().step.specpv;
  if (!specpv.enabled) return nullptr;
  return {{"mode", SpecPvModeName(specpv.mode)}, {"retrieval_tokens", specpv.RetrievalTokens()}};
}

void AddRow(const std::string& name, const KindResult& kind, Table* table) {
  table->Add({name, std::to_string(kind.right), std::to_string(kind.items),
              fmt::format("{:.1f}%", 100.0 * kind.right / kind.items), std::to_string(kind.tokens),
              fmt::format("{:.2f}", kind.stats.tau()), fmt::format("{:.0f}", PerSecond(kind))});
}

// The chosen items by kind.
Result<std::map<std::string, std::vector<const TaskItem*>>> ByKind(
    const std::vector<TaskItem>& items, const TasksOptions& options) {
  std::map<std::string, std::vector<const TaskItem*>> kinds;
  for (const TaskItem& item : items) {
    auto& kind = kinds[item.kind];
    if (options.limit == 0 || static_cast<int>(kind.size()) < options.limit) kind.push_back(&item);
  }
  for (const std::string& name : options.kinds) {
    if (!kinds.contains(name)) return InvalidArgument("--kinds: there are no tasks '{}'", name);
  }
  if (!options.kinds.empty()) {
    std::erase_if(kinds, [&](const auto& kind) {
      return std::ranges::find(options.kinds, kind.first) == options.kinds.end();
    });
  }
  return kinds;
}

Result<TaskBench> Load(const Config& config) {
  TaskBench bench{.config = config};
  TALON_ASSIGN_OR_RETURN(bench.model, LoadTarget(config));
  TALON_ASSIGN_OR_RETURN(bench.chat, RequireChat(config.serve, *bench.model));
  TALON_ASSIGN_OR_RETURN(bench.sampling,
                         MakeSamplingParams(config.sampling, bench.model->tokenizer.get()));
  if (bench.model->engine_options.kv_tokens == 0) {
    bench.model->engine_options.kv_tokens =
        DefaultKvTokens(*bench.model, bench.model->engine_options.max_sequences);
  }
  TALON_ASSIGN_OR_RETURN(bench.engine,
                         MakeEngine(bench.model.get(), config, bench.model->drafters));
  return bench;
}

Result<int> BenchTasks(Config config, TasksOptions options) {
  if (options.tasks.empty()) {
    TALON_ASSIGN_OR_RETURN(options.tasks, BundledFile("tests/data/tasks.jsonl"));
  }
  TALON_RETURN_IF_ERROR(CheckSettings(config, kChatSettings));
  TALON_ASSIGN_OR_RETURN(const auto items, ReadTasks(options.tasks));
  TALON_ASSIGN_OR_RETURN(const auto kinds, ByKind(items, options));
  if (config.sampling.seed < 0) config.sampling.seed = 1;
  TALON_ASSIGN_OR_RETURN(const TaskBench bench, Load(config));
  Json json = {{"model", bench.model->name},
               {"device", bench.model->backend->info().description},
               {"weights", config.weights},
               {"kv_dtype", config.kv_dtype},
               {"tasks", options.tasks},
               {"drafter", bench.model->drafters.Name()},
               {"temperature", config.sampling.temperature},
               {"specpv", SpecPvJson(*bench.engine)},
               {"kinds", Json::array()},
               {"answers", Json::array()}};
  Table table({"kind", "right", "of", "accuracy", "tokens", "tau", "tokens/s"});
  KindResult all;
  for (const auto& [name, of_kind] : kinds) {
    const StatusLine progress;
    progress.Show(fmt::format("{}: {} tasks", name, of_kind.size()));
    TALON_ASSIGN_OR_RETURN(const KindResult kind,
                           RunKind(bench, of_kind, options.wrong, &json["answers"]));
    AddRow(name, kind, &table);
    json["kinds"].push_back(KindJson(name, kind));
    all.Add(kind);
  }
  AddRow("all", all, &table);
  json["all"] = KindJson("all", all);
  std::printf("%s, weights %s, KV %s, %s, %s\n%s", bench.model->name.c_str(),
              config.weights.c_str(), config.kv_dtype.c_str(), bench.model->drafters.Name().c_str(),
              config.sampling.temperature > 0
                  ? fmt::format("temperature {:.2g}", config.sampling.temperature).c_str()
                  : "greedy",
              table.ToString().c_str());
  TALON_RETURN_IF_ERROR(SaveJson(options.json, json));
  return kExitOk;
}

}  // namespace

void AddBenchTasks(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<TasksOptions>();
  Command command = bench.AddSubcommand(
      "tasks", "Right answers by kind of task, for any weights, KV type, SpecPV mode and drafter");
  command
      .AddOption("--tasks", &options->tasks,
                 "JSON lines with \"id\", \"kind\", \"messages\" and \"answer\", \"json\" or "
                 "\"tool_call\" (default: the bundled tasks)")
      .TypeName("FILE");
  command.AddOption("--kinds", &options->kinds, "Only these kinds, separated by commas")
      .Delimiter(',');
  command.AddOption("--limit", &options->limit, "Tasks of a kind at most; 0 = all")
      .Default(options->limit)
      .Range(0, 1 << 20);
  command.AddFlag("--wrong", &options->wrong, "Show the answers that are not right");
  command.AddOption("--json", &options->json,
                    "Also write the figures and all answers to this file");
  AddSettings(command, config,
              kModelSettings | kSamplingSettings | kChatSettings | kSpeculativeSettings);
  command.SetFooter(
      "\nGreedy unless --temperature says otherwise: what the model suggests does not\n"
      "count here. An answer is right if it is equal to the expected text, JSON value\n"
      "or call of a tool; a story if it has 100 tokens and no run of 8 occurs in it\n"
      "more than twice.\n"
      "\nExamples:\n"
      "  talon bench tasks --weights int4 --wrong\n"
      "  talon bench tasks --enable-specpv --specpv-mode fast \\\n"
      "      --specpv-partial-threshold 256\n");
  SetBody(command, body, [config, options] { return BenchTasks(*config, *options); });
}

}  // namespace talon
