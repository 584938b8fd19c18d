#include "apps/bench/longcontext_figures.h"

#include <algorithm>
#include <map>
#include <string>

#include "apps/bench/bench.h"
#include "base/json.h"

namespace talon {
namespace {

constexpr int kBaseContext = 4096;  // longer contexts are compared with it

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Sample by sample, because each pair ran close together in time.
double SpeedRatio(const std::vector<Sample>& of, const std::vector<Sample>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < of.size(); ++i) {
    ratios.push_back(Share(of[i].TokensPerSecond(), to[i].TokensPerSecond()));
  }
  return Median(ratios);
}

Sample SumOf(const std::vector<Sample>& samples) {
  Sample sum = samples[0];
  for (size_t i = 1; i < samples.size(); ++i) sum.Add(samples[i]);
  return sum;
}

double MedianSpeed(const std::vector<Sample>& samples) {
  std::vector<double> speeds;
  for (const Sample& sample : samples) speeds.push_back(sample.TokensPerSecond());
  return Median(speeds);
}

bool SameTokens(const std::vector<Sample>& a, const std::vector<Sample>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Sample& x, const Sample& y) { return x.tokens == y.tokens; });
}

Json VariantName(const Variant& variant) {
  return {{"label", variant.Label()},
          {"mode", variant.mode},
          {"verification", variant.partial ? SpecPvModeName(*variant.partial) : "full"},
          {"budget", variant.budget}};
}

Json GroupJson(const StepGroup& group, size_t kv_bytes_per_token) {
  const auto steps = static_cast<double>(group.steps());
  return {{"steps", group.steps()},
          {"ms", Median(group.seconds) * 1e3},
          {"rows", Share(static_cast<double>(group.rows), steps)},
          {"kv_bytes_read",
           Share(static_cast<double>(group.prefix_tokens * kv_bytes_per_token), steps)}};
}

Json VariantJson(const Variant& variant, const std::vector<Sample>& samples) {
  const Sample sum = SumOf(samples);
  const auto passes = static_cast<double>(sum.stats.passes);
  Json json = VariantName(variant);
  json.update({{"tokens_per_second", MedianSpeed(samples)},
               {"tau", sum.stats.tau()},
               {"draft_share", Share(sum.stats.draft_seconds, sum.stats.decode_seconds)},
               {"draft_ms_per_step", Share(sum.stats.draft_seconds * 1e3, passes)},
               {"prompt_seconds", sum.stats.prompt_seconds / static_cast<double>(samples.size())},
               {"kv_bytes_read_per_step", Share(static_cast<double>(sum.stats.prefix_tokens_read) *
                                                    static_cast<double>(sum.kv_bytes_per_token),
                                                passes)},
               {"partial", GroupJson(sum.partial, sum.kv_bytes_per_token)},
               {"full", GroupJson(sum.full, sum.kv_bytes_per_token)},
               {"refreshes", sum.refreshes},
               {"confirmed_tokens", sum.confirmed},
               {"rolled_back_tokens", sum.rolled_back},
               {"fallbacks", sum.fallbacks},
               {"kv_bytes", sum.kv_bytes}});
  return json;
}

Json AgreementRow(const Variant& variant, const Sample& sum) {
  Json distances = Json::array();
  for (int i = 0; i < AgreementByDistance::kBuckets; ++i) {
    if (sum.checked[i] == 0) continue;
    distances.push_back({{"distance", AgreementByDistance::FirstDistance(i)},
                         {"checked", sum.checked[i]},
                         {"disagreed", sum.disagreed[i]}});
  }
  Json json = VariantName(variant);
  json["distances"] = distances;
  return json;
}

// The row of a variant in a context, null if it has no partial steps there.
const Json* PartialRow(const Json& context, const std::string& label) {
  for (const Json& row : context["rows"]) {
    if (row["label"] == label && row["partial"]["steps"] > 0) return &row;
  }
  return nullptr;
}

// What the parts of a roofline have in common.
struct RooflinePart {
  const RooflineInput& input;
  const Variant& variant;
  const Sample& sum;

  // `summaries`: the passes also read the key summaries of all blocks, to choose some.
  Json Row(const char* part, const StepGroup& group, bool summaries) const {
    const double kv = static_cast<double>(sum.kv_bytes_per_token) *
                      (summaries ? 1 + 1.0 / input.block_size : 1.0);
    const Work work = WorkOf(input.model, {.passes = group.steps(),
                                           .rows = group.rows,
                                           .prefix_tokens = group.prefix_tokens,
                                           .weight_bytes = input.weight_bytes,
                                           .kv_bytes_per_token = kv});
    const Bound bound = BoundOf(work, input.peaks);
    const auto tokens = static_cast<double>(std::max<int64_t>(sum.stats.emitted, 1));
    const auto passes = static_cast<double>(std::max<int64_t>(group.steps(), 1));
    Json json = VariantName(variant);
    json.update({{"part", part},
                 {"weight_bytes", work.weight_bytes / tokens},
                 {"kv_bytes", work.kv_bytes / tokens},
                 {"flops", work.flops / tokens},
                 {"memory_ms", bound.memory_seconds * 1e3 / tokens},
                 {"compute_ms", bound.compute_seconds * 1e3 / tokens},
                 {"bound_by", bound.by_memory() ? "memory" : "compute"},
                 {"bound_ms", bound.seconds() * 1e3 / tokens},
                 {"measured_ms", group.TotalSeconds() * 1e3 / tokens},
                 {"share_of_bound", Share(bound.seconds(), group.TotalSeconds())},
                 {"rows_per_pass", static_cast<double>(group.rows) / passes},
                 {"passes_per_token", static_cast<double>(group.steps()) / tokens},
                 {"draft_share", Share(sum.stats.draft_seconds, sum.stats.decode_seconds)}});
    return json;
  }
};

}  // namespace

Json ContextJson(const std::vector<Variant>& variants, const ContextRuns& runs, bool lossless) {
  Json rows = Json::array();
  for (size_t v = 0; v < variants.size(); ++v) {
    const std::vector<Sample>& samples = runs.samples[v];
    const int full = FullTwinOf(variants, variants[v]);
    Json row = VariantJson(variants[v], samples);
    row["ratio_to_plain"] = SpeedRatio(samples, runs.samples[0]);
    row["ratio_to_full"] =
        full < 0 ? Json() : Json(SpeedRatio(samples, runs.samples[static_cast<size_t>(full)]));
    row["identical"] = SameTokens(samples, runs.samples[0]);
    row["must_be_identical"] = lossless && variants[v].exact();
    rows.push_back(row);
  }
  return {{"context", runs.context}, {"samples", runs.samples[0].size()}, {"rows", rows}};
}

Json AgreementJson(const std::vector<Variant>& variants, const std::vector<ContextRuns>& runs) {
  Json rows = Json::array();
  for (size_t v = 0; v < variants.size(); ++v) {
    Sample sum;
    for (const ContextRuns& context : runs) {
      for (const Sample& sample : context.samples[v]) sum.Add(sample);
    }
    const Json row = AgreementRow(variants[v], sum);
    if (!row["distances"].empty()) rows.push_back(row);
  }
  return rows;
}

Json FlatnessJson(const Json& contexts) {
  Json rows = Json::array();
  if (contexts.empty()) return rows;
  for (const Json& variant : contexts[0]["rows"]) {
    std::map<int, const Json*> by_context;
    for (const Json& context : contexts) {
      const Json* row = PartialRow(context, variant["label"]);
      if (row != nullptr) by_context[context["context"]] = row;
    }
    if (by_context.size() < 2) continue;
    const auto& [context, far] = *by_context.rbegin();
    const bool usual = by_context.contains(kBaseContext) && context != kBaseContext;
    const int base_context = usual ? kBaseContext : by_context.begin()->first;
    const Json& base = *by_context[base_context];
    rows.push_back({{"label", variant["label"]},
                    {"budget", variant["budget"]},
                    {"context", context},
                    {"base_context", base_context},
                    {"partial", (*far)["partial"]},
                    {"base_partial", base["partial"]},
                    {"draft_ms", (*far)["draft_ms_per_step"]},
                    {"base_draft_ms", base["draft_ms_per_step"]},
                    {"ratio", Share((*far)["partial"]["ms"], base["partial"]["ms"])}});
  }
  return rows;
}

Json MemoryJson(const std::vector<Variant>& variants, const std::vector<ContextRuns>& runs) {
  Json rows = Json::array();
  for (const ContextRuns& context : runs) {
    for (size_t v = 0; v < variants.size(); ++v) {
      const int full = FullTwinOf(variants, variants[v]);
      if (!variants[v].partial || full < 0) continue;
      const size_t bytes = context.samples[v][0].kv_bytes;
      const size_t full_bytes = context.samples[static_cast<size_t>(full)][0].kv_bytes;
      Json row = VariantName(variants[v]);
      row.update({{"context", context.context},
                  {"kv_bytes", bytes},
                  {"full_kv_bytes", full_bytes},
                  {"ratio", Share(static_cast<double>(bytes), static_cast<double>(full_bytes))}});
      rows.push_back(row);
    }
  }
  return rows;
}

Json RooflineJson(const RooflineInput& input, const std::vector<Variant>& variants,
                  const ContextRuns& runs) {
  Json rows = Json::array();
  for (size_t v = 0; v < variants.size(); ++v) {
    const Sample sum = SumOf(runs.samples[v]);
    const RooflinePart part{input, variants[v], sum};
    if (sum.partial.steps() == 0) {
      if (!variants[v].partial) rows.push_back(part.Row("", sum.full, false));
      continue;
    }
    rows.push_back(part.Row("partial", sum.partial, false));
    rows.push_back(part.Row("full", sum.full, sum.key_summaries));
  }
  return {{"context", runs.context}, {"rows", rows}};
}

}  // namespace talon
