#include "apps/doctor/checks.h"

#include <fmt/format.h>

#include "apps/common/table.h"
#include "base/json.h"

namespace talon {
namespace {

// A draft's weights are read once for each level of a tree.
constexpr double kHeavyDraft = 0.3;  // share of the target's weights

bool IsHead(const DraftFacts& facts) { return facts.kind != "STANDALONE"; }

CheckLine CheckVocabulary(const DraftFacts& facts) {
  if (!facts.same_tokenizer) {
    return {Severity::kWarning, "vocabulary",
            fmt::format("{} tokens in both, but the tokenizer.json files differ: ids may mean "
                        "other texts",
                        facts.target_vocab)};
  }
  if (facts.draft_vocab == facts.target_vocab) {
    return {Severity::kOk, "vocabulary",
            fmt::format("{} tokens, all can be drafted", facts.target_vocab)};
  }
  return {Severity::kOk, "vocabulary",
          fmt::format("{} tokens, {} of them can be drafted ({:.0f}%)", facts.target_vocab,
                      facts.draft_vocab, 100.0 * facts.draft_vocab / facts.target_vocab)};
}

CheckLine CheckLayers(const DraftFacts& facts) {
  if (!IsHead(facts)) {
    return {Severity::kOk, "layers",
            fmt::format("{} against the target's {}", facts.draft_layers, facts.target_layers)};
  }
  return {Severity::kOk, "layers",
          fmt::format("inputs of layers {} of {} ({})", fmt::join(facts.capture_layers, ", "),
                      facts.target_layers, facts.capture_source)};
}

CheckLine CheckSizes(const DraftFacts& facts) {
  std::string text =
      fmt::format("hidden size {}, the draft's {}", facts.target_hidden, facts.draft_hidden);
  if (IsHead(facts)) {
    text +=
        fmt::format(", made of {} x {} features", facts.capture_layers.size(), facts.target_hidden);
  }
  return {Severity::kOk, "sizes", text};
}

CheckLine CheckPositions(const DraftFacts& facts) {
  const std::string limits =
      fmt::format("target {}, draft {}, longest {}, draft rope {}", facts.target_positions,
                  facts.draft_positions, facts.max_length, RopeKindName(facts.draft_rope));
  if (facts.draft_positions >= facts.max_length) return {Severity::kOk, "positions", limits};
  if (!IsHead(facts)) {
    return {Severity::kWarning, "positions",
            limits + fmt::format("; past {} nothing is drafted", facts.draft_positions)};
  }
  if (facts.draft_rope != RopeKind::kDefault) return {Severity::kOk, "positions", limits};
  return {Severity::kWarning, "positions",
          limits + fmt::format("; no rope scaling, so acceptance may fall past {}",
                               facts.draft_positions)};
}

CheckLine CheckTypes(const DraftFacts& facts, const Config& config) {
  const auto as = [](const std::string& stored, const std::string& format) {
    return format == "auto" ? stored : fmt::format("{} as {}", stored, format);
  };
  const std::string& draft_format = config.speculative.draft_weights;
  const std::string text =
      fmt::format("target {}, draft {}, KV {}", as(facts.target_types, config.weights),
                  as(facts.draft_types, draft_format), config.kv_dtype);
  const bool wider =
      facts.draft_types == "f32" && facts.target_types.find("f32") == std::string::npos;
  if (!wider || draft_format != "auto") return {Severity::kOk, "types", text};
  return {Severity::kWarning, "types",
          text + "; --speculative-draft-weights bf16 would halve what drafting reads"};
}

CheckLine CheckMemory(const DraftFacts& facts, const Config& config) {
  const auto share = static_cast<double>(facts.draft_weight_bytes) /
                     static_cast<double>(std::max<size_t>(facts.target_weight_bytes, 1));
  const std::string text =
      fmt::format("draft {} ({:.0f}% of the target), KV {}, {} x {} rows",
                  FormatBytes(static_cast<double>(facts.draft_weight_bytes)), 100 * share,
                  FormatBytes(static_cast<double>(facts.draft_kv_bytes)), config.max_sequences,
                  facts.max_length);
  return {share > kHeavyDraft ? Severity::kWarning : Severity::kOk, "memory",
          share > kHeavyDraft ? text + "; a draft this heavy costs much of its gain" : text};
}

CheckLine CheckTree(const Config& config, const DraftBudget& budget) {
  const std::string shape = budget.top_k == 1
                                ? fmt::format("a chain of {} drafts", budget.max_depth)
                                : fmt::format("{} nodes, {} levels, {} branches", budget.max_nodes,
                                              budget.max_depth, budget.top_k);
  return {Severity::kOk, "tree",
          shape + (config.speculative.adaptive ? " at most (adaptive)" : ", fixed")};
}

}  // namespace

const char* VerdictName(Severity verdict) {
  switch (verdict) {
    case Severity::kOk:
      return "ok";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "unknown";
}

std::vector<CheckLine> CheckDraft(const DraftFacts& facts, const Config& config,
                                  const DraftBudget& budget) {
  return {CheckVocabulary(facts),   CheckLayers(facts),        CheckSizes(facts),
          CheckPositions(facts),    CheckTypes(facts, config), CheckMemory(facts, config),
          CheckTree(config, budget)};
}

Json FactsJson(const DraftFacts& facts, const std::vector<CheckLine>& lines) {
  Json checks = Json::array();
  for (const CheckLine& line : lines) {
    checks.push_back(
        {{"verdict", VerdictName(line.verdict)}, {"subject", line.subject}, {"text", line.text}});
  }
  return {{"kind", facts.kind},
          {"directory", facts.dir},
          {"target_vocab", facts.target_vocab},
          {"draft_vocab", facts.draft_vocab},
          {"capture_layers", facts.capture_layers},
          {"capture_source", facts.capture_source},
          {"target_hidden", facts.target_hidden},
          {"draft_hidden", facts.draft_hidden},
          {"target_positions", facts.target_positions},
          {"draft_positions", facts.draft_positions},
          {"max_length", facts.max_length},
          {"draft_rope", RopeKindName(facts.draft_rope)},
          {"target_types", facts.target_types},
          {"draft_types", facts.draft_types},
          {"draft_weight_bytes", facts.draft_weight_bytes},
          {"draft_kv_bytes", facts.draft_kv_bytes},
          {"checks", checks}};
}

}  // namespace talon
