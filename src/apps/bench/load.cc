// `talon bench load`: streaming clients against a running server.
#include <chrono>
#include <cstdio>
#include <thread>

#include "apps/bench/bench.h"
#include "apps/common/table.h"
#include "base/file.h"
#include "base/json.h"
#include "serve/http/load_client.h"
#include "setup/loader.h"
#include "setup/progress.h"

namespace talon {
namespace {

struct LoadBenchOptions {
  LoadPlan plan{.url = "http://127.0.0.1:8080", .clients = 32, .seconds = 60, .disconnects = 0.05};
  double alone_seconds = 10;
  std::string prompts;
  std::string api_key_file;
  std::string json;
};

Result<std::vector<std::string>> ReadTexts(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> prompts;
  for (size_t start = 0, end = 0; start < text.size(); start = end + 1) {
    end = std::min(text.find('\n', start), text.size());
    if (end == start) continue;
    TALON_ASSIGN_OR_RETURN(const Json json, ParseJson(text.substr(start, end - start), path));
    if (!json.contains("prompt") || !json["prompt"].is_string()) {
      return InvalidArgument("{}: line {} has no \"prompt\"", path, prompts.size() + 1);
    }
    prompts.push_back(json["prompt"].get<std::string>());
  }
  if (prompts.empty()) return InvalidArgument("{}: no prompts", path);
  return prompts;
}

// The server's state once nothing runs any more; a client that left is noticed a little later.
Result<Json> IdleStatus(const LoadPlan& plan) {
  Json status;
  for (int i = 0; i < 100; ++i) {
    TALON_ASSIGN_OR_RETURN(status, ReadStatus(plan));
    const Json& requests = status["requests"];
    if (requests["running"] == 0 && requests["waiting"] == 0) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return FailedPrecondition("requests are left over: {}", status["requests"].dump());
}

int UsedBlocks(const Json& status) { return status["kv"]["used"].get<int>(); }

std::string Milliseconds(double seconds) { return fmt::format("{:.0f} ms", 1e3 * seconds); }

void AddRow(const char* name, const LoadReport& report, double alone_rate, Table* table) {
  table->Add({name, fmt::format("{:.0f}", report.TokensPerSecond()),
              fmt::format("{:.2f}x", report.TokensPerSecond() / alone_rate),
              std::to_string(report.finished), std::to_string(report.left),
              std::to_string(report.num_errors()),
              Milliseconds(Percentile(report.first_token_seconds, 0.5)),
              Milliseconds(Percentile(report.first_token_seconds, 0.99)),
              Milliseconds(Percentile(report.answer_seconds, 0.5))});
}

Json ReportJson(const LoadReport& report) {
  return {{"tokens_per_second", report.TokensPerSecond()},
          {"finished", report.finished},
          {"left", report.left},
          {"errors", report.num_errors()},
          {"ttft_p50_seconds", Percentile(report.first_token_seconds, 0.5)},
          {"ttft_p99_seconds", Percentile(report.first_token_seconds, 0.99)},
          {"answer_p50_seconds", Percentile(report.answer_seconds, 0.5)}};
}

Result<int> BenchLoad(LoadBenchOptions options) {
  LoadPlan& plan = options.plan;
  if (options.prompts.empty()) {
    TALON_ASSIGN_OR_RETURN(options.prompts, BundledFile("tests/data/prompts/docs.jsonl"));
  }
  TALON_ASSIGN_OR_RETURN(plan.prompts, ReadTexts(options.prompts));
  if (!options.api_key_file.empty()) {
    TALON_ASSIGN_OR_RETURN(const std::string keys, ReadFile(options.api_key_file));
    plan.api_key = keys.substr(0, keys.find_first_of("\r\n"));
  }
  const StatusLine progress;
  LoadPlan one = plan;
  one.clients = 1;
  one.seconds = options.alone_seconds;
  one.disconnects = 0;
  progress.Show("one client");
  TALON_ASSIGN_OR_RETURN(const LoadReport alone, RunLoad(one));
  TALON_ASSIGN_OR_RETURN(const Json before, IdleStatus(plan));
  progress.Show(fmt::format("{} clients for {:.0f} s", plan.clients, plan.seconds));
  TALON_ASSIGN_OR_RETURN(const LoadReport load, RunLoad(plan));
  TALON_ASSIGN_OR_RETURN(const Json after, IdleStatus(plan));

  Table table({"clients", "tokens/s", "of one", "done", "left", "errors", "first p50", "first p99",
               "answer p50"});
  AddRow("1", alone, alone.TokensPerSecond(), &table);
  AddRow(std::to_string(plan.clients).c_str(), load, alone.TokensPerSecond(), &table);
  std::printf("%s, drafter %s, answers of %d to %d tokens, %.0f%% of them left in the middle\n%s",
              after["model"].get<std::string>().c_str(),
              after["drafter"].get<std::string>().c_str(), plan.min_tokens, plan.max_tokens,
              100 * plan.disconnects, table.ToString().c_str());
  const double memory_before = before["memory_bytes"].get<double>();
  const double memory_after = after["memory_bytes"].get<double>();
  std::printf("KV blocks in use: %d before, %d after; the server's memory: %s before, %s after\n",
              UsedBlocks(before), UsedBlocks(after), FormatBytes(memory_before).c_str(),
              FormatBytes(memory_after).c_str());
  for (const auto& [message, count] : load.errors) {
    std::printf("%lld x %s\n", static_cast<long long>(count), message.c_str());
  }
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"clients", plan.clients},
                                                {"alone", ReportJson(alone)},
                                                {"load", ReportJson(load)},
                                                {"used_blocks_after", UsedBlocks(after)},
                                                {"memory_bytes_before", memory_before},
                                                {"memory_bytes_after", memory_after}}));
  return load.num_errors() == 0 && UsedBlocks(after) == UsedBlocks(before) ? kExitOk : kExitFailed;
}

}  // namespace

void AddBenchLoad(Command bench, Config*, CommandBody* body) {
  auto options = std::make_shared<LoadBenchOptions>();
  LoadPlan* plan = &options->plan;
  Command command =
      bench.AddSubcommand("load", "Streaming clients against a running 'talon serve'");
  command.AddOption("--url", &plan->url, "The server").Default(plan->url);
  command.AddOption("--clients", &plan->clients, "Clients at once")
      .Default(plan->clients)
      .Range(1, 1024);
  command.AddOption("--seconds", &plan->seconds, "How long they ask").Default(plan->seconds);
  command
      .AddOption("--alone-seconds", &options->alone_seconds,
                 "How long one client asks before, for comparison")
      .Default(options->alone_seconds);
  command.AddOption("--disconnects", &plan->disconnects, "Share of answers left in the middle")
      .Default(plan->disconnects)
      .Range(0.0, 1.0);
  command.AddOption("--prompts", &options->prompts,
                    "JSON lines with \"prompt\" (default: the bundled documents)");
  command.AddOption("--api-key-file", &options->api_key_file, "The first key of it is used");
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  SetBody(command, body, [options] { return BenchLoad(*options); });
}

}  // namespace talon
