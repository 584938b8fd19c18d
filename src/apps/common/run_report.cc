#include "apps/common/run_report.h"

#include "base/json.h"

namespace talon {
namespace {

double PerSecond(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

// "0.61 0.42 0.30": share accepted of those tried, by depth.
std::string AcceptanceByDepth(const RequestStats& stats) {
  std::string out;
  for (int depth = 0; depth < RequestStats::kMaxDepth && stats.tried_at_depth[depth] > 0; ++depth) {
    if (depth == 8) return out + " ...";
    out += fmt::format("{}{:.2f}", depth == 0 ? "" : " ",
                       static_cast<double>(stats.accepted_at_depth[depth]) /
                           static_cast<double>(stats.tried_at_depth[depth]));
  }
  return out.empty() ? "-" : out;
}

struct SpeedUp {
  double predicted = 0;  // tau / (c(T) + draft cost), at the mean number of nodes
  double measured = 0;   // against plain steps
  double plain = 0;      // tokens per second of such steps
};

// Plain steps are those of the run itself, if it had a few: the verify curve has the machine at its
// best. REQUIRES: a verify curve.
SpeedUp SpeedUpOf(const RequestStats& stats, const VerifyCurve& curve) {
  const auto passes = static_cast<double>(std::max<int64_t>(stats.passes, 1));
  const StepShape shape{.context = static_cast<int>(stats.prompt_tokens + stats.emitted / 2)};
  const double nodes = 1 + static_cast<double>(stats.drafted) / passes;
  constexpr int kFew = 3;
  const double one = curve.Seconds(shape, 1);
  const double plain = stats.plain_passes < kFew
                           ? one
                           : stats.plain_seconds / static_cast<double>(stats.plain_passes);
  const double step = curve.Seconds(shape, nodes) + stats.draft_seconds / passes * one / plain;
  return {.predicted = stats.tau() * one / step,
          .measured = PerSecond(static_cast<double>(stats.emitted) * plain, stats.decode_seconds),
          .plain = PerSecond(1, plain)};
}

void AddSpeculation(const RequestStats& stats, const LoadedModel& model, int64_t rolled_back,
                    Table* table) {
  AddAcceptance(stats, model.drafters.Name(), table);
  if (stats.partial_passes > 0) {
    table->Add({"partial", fmt::format("{} of {} passes, {} provisional tokens taken back",
                                       stats.partial_passes, stats.passes, rolled_back)});
  }
  table->Add(
      {"drafting", fmt::format("{:.0f}% of the time",
                               100 * stats.draft_seconds / std::max(stats.decode_seconds, 1e-9))});
  if (model.curve.empty()) return;
  const SpeedUp speed_up = SpeedUpOf(stats, model.curve);
  table->Add(
      {"speed-up", fmt::format("{:.2f}x of plain decoding's {:.0f} tokens/s, {:.2f}x predicted",
                               speed_up.measured, speed_up.plain, speed_up.predicted)});
}

}  // namespace

void AddAcceptance(const RequestStats& stats, const std::string& drafter, Table* table) {
  table->Add({"speculation", fmt::format("{}, tau {:.2f} (tokens per pass of the model){}", drafter,
                                         stats.tau(), stats.lossy ? ", LOSSY" : "")});
  table->Add({"drafts", fmt::format("{} of {} accepted", stats.accepted, stats.drafted)});
  table->Add({"by depth", AcceptanceByDepth(stats)});
}

void AddGeneration(const GenerateResult& result, Table* table) {
  const RequestStats& stats = result.stats;
  const auto generated = static_cast<double>(result.tokens.size());
  table->Add({"prompt", fmt::format("{} tokens, {:.0f} tokens/s", stats.prompt_tokens,
                                    PerSecond(static_cast<double>(stats.prompt_tokens),
                                              stats.prompt_seconds))});
  if (stats.first_token_seconds >= 0) {
    table->Add({"first token", fmt::format("after {:.3g} s", stats.first_token_seconds)});
  }
  table->Add(
      {"generated",
       fmt::format("{} tokens, {:.0f} tokens/s, ended by {}", result.tokens.size(),
                   PerSecond(generated, stats.decode_seconds), FinishReasonName(result.finish))});
  table->Add({"seed", fmt::format("{}", result.seed)});
}

void AddStats(const RequestStats& more, RequestStats* sum) {
  sum->prompt_tokens += more.prompt_tokens;
  sum->passes += more.passes;
  sum->partial_passes += more.partial_passes;
  sum->emitted += more.emitted;
  sum->drafted += more.drafted;
  sum->accepted += more.accepted;
  sum->prompt_seconds += more.prompt_seconds;
  sum->decode_seconds += more.decode_seconds;
  sum->draft_seconds += more.draft_seconds;
  sum->verify_seconds += more.verify_seconds;
  sum->plain_passes += more.plain_passes;
  sum->plain_seconds += more.plain_seconds;
  sum->partial_seconds += more.partial_seconds;
  sum->prefix_tokens_read += more.prefix_tokens_read;
  sum->rows += more.rows;
  sum->lossy = sum->lossy || more.lossy;
  for (int d = 0; d < RequestStats::kMaxDepth; ++d) {
    sum->tried_at_depth[d] += more.tried_at_depth[d];
    sum->accepted_at_depth[d] += more.accepted_at_depth[d];
  }
}

std::string ReportTable(const GenerateResult& result, const LoadedModel& model, Engine* engine) {
  const RequestStats& stats = result.stats;
  Table table({});
  table.Add({"model", model.name});
  table.Add({"device", model.backend->info().description});
  table.Add({"loaded", fmt::format("in {:.3g} s", model.load_seconds)});
  AddGeneration(result, &table);
  if (!model.drafters.none() || stats.partial_passes > 0) {
    AddSpeculation(stats, model, engine->metrics().Total(Counter::kSpecPvRolledBackTokens), &table);
  }
  table.Add(
      {"memory", fmt::format("weights {}, KV {}, workspace {}, peak {}",
                             FormatBytes(static_cast<double>(model.target->weight_bytes())),
                             FormatBytes(static_cast<double>(engine->kv().bytes())),
                             FormatBytes(static_cast<double>(model.target->workspace_bytes())),
                             FormatBytes(static_cast<double>(PeakMemoryBytes())))});
  return table.ToString(/*all_left=*/true);
}

Json GenerationJson(const GenerateResult& result) {
  const RequestStats& stats = result.stats;
  Json tokens = Json::array(), logprobs = Json::array(), origins = Json::array();
  for (const EmittedToken& token : result.tokens) {
    tokens.push_back(token.token);
    origins.push_back(token.drafted ? "draft" : "bonus");
    Json top = Json::array();
    for (const TopLogProb& entry : token.top) {
      top.push_back({{"token", entry.token}, {"logprob", entry.log_prob}});
    }
    logprobs.push_back({{"token", token.token}, {"logprob", token.log_prob}, {"top", top}});
  }
  Json by_depth = Json::array();
  for (int depth = 0; depth < RequestStats::kMaxDepth && stats.tried_at_depth[depth] > 0; ++depth) {
    by_depth.push_back(
        {{"tried", stats.tried_at_depth[depth]}, {"accepted", stats.accepted_at_depth[depth]}});
  }
  Json out = {{"text", result.text},
              {"tokens", tokens},
              {"origins", origins},
              {"finish_reason", FinishReasonName(result.finish)},
              {"seed", result.seed},
              {"stats",
               {{"prompt_tokens", stats.prompt_tokens},
                {"prompt_seconds", stats.prompt_seconds},
                {"first_token_seconds",
                 stats.first_token_seconds < 0 ? Json() : Json(stats.first_token_seconds)},
                {"generated_tokens", result.tokens.size()},
                {"decode_seconds", stats.decode_seconds},
                {"tokens_per_second",
                 PerSecond(static_cast<double>(result.tokens.size()), stats.decode_seconds)},
                {"passes", stats.passes},
                {"partial_passes", stats.partial_passes},
                {"tau", stats.tau()},
                {"drafted", stats.drafted},
                {"accepted", stats.accepted},
                {"by_depth", by_depth},
                {"draft_seconds", stats.draft_seconds},
                {"verify_seconds", stats.verify_seconds},
                {"plain_passes", stats.plain_passes},
                {"plain_seconds", stats.plain_seconds},
                {"lossy", stats.lossy}}}};
  if (!result.tokens.empty() && !result.tokens[0].top.empty()) out["logprobs"] = logprobs;
  return out;
}

Json CountersJson(const Metrics& metrics) {
  Json out = Json::object();
  for (const auto& [key, value] : metrics.Snapshot()) {
    out["talon_" + key.first + (key.second.empty() ? "" : "{" + key.second + "}")] = value;
  }
  return out;
}

Json ReportJson(const GenerateResult& result, const LoadedModel& model, Engine* engine) {
  Json out = GenerationJson(result);
  out["model"] = model.name;
  out["device"] = model.backend->info().description;
  out["drafter"] = model.drafters.Name();
  out["load_seconds"] = model.load_seconds;
  out["memory"] = {{"weights", model.target->weight_bytes()},
                   {"kv", engine->kv().bytes()},
                   {"workspace", model.target->workspace_bytes()},
                   {"peak", PeakMemoryBytes()}};
  out["metrics"] = CountersJson(engine->metrics());
  if (!model.drafters.none() && !model.curve.empty()) {
    const SpeedUp speed_up = SpeedUpOf(result.stats, model.curve);
    out["stats"]["predicted_speed_up"] = speed_up.predicted;
    out["stats"]["measured_speed_up"] = speed_up.measured;
    out["stats"]["plain_tokens_per_second"] = speed_up.plain;
  }
  return out;
}

}  // namespace talon
