#include "apps/bench/longcontext_report.h"

#include <algorithm>
#include <map>
#include <set>

#include "apps/common/table.h"
#include "base/json.h"
#include "base/status.h"
#include "setup/wrap_text.h"

namespace talon {
namespace {

constexpr int kUsualBudget = 2048;
constexpr double kMega = 1e6;

std::string Number(const Json& value, int digits, const char* unit = "") {
  if (!value.is_number()) return "-";
  return fmt::format("{:.{}f}{}", value.get<double>(), digits, unit);
}

std::string Mega(const Json& value, int digits) {
  return fmt::format("{:.{}f}", value.get<double>() / kMega, digits);
}

// 100 only if it is.
std::string Percent(double share) {
  return share >= 1 ? "100" : fmt::format("{:.1f}", std::min(100 * share, 99.9));
}

bool HasPartialSteps(const Json& row) { return row["partial"]["steps"] > 0; }

// "init 1 cap 5 fin 1"
std::string ShortReasons(const Json& refreshes) {
  static const std::vector<std::pair<const char*, const char*>> kShort = {
      {"init", "init"},  {"capacity", "cap"}, {"interval", "int"},
      {"finish", "fin"}, {"drift", "drift"},  {"request", "req"}};
  std::string out;
  for (const auto& [name, shorter] : kShort) {
    if (!refreshes.contains(name)) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : " ", shorter, refreshes[name].get<int64_t>());
  }
  return out.empty() ? "-" : out;
}

std::string SpeedTable(const Json& rows) {
  Table table({"mode", "budget", "tokens/s", "vs plain", "vs full", "tau", "KV MB", "same"});
  for (const Json& row : rows) {
    const bool partial = row["budget"] > 0;
    table.Add({row["mode"], partial ? std::to_string(row["budget"].get<int>()) : "-",
               Number(row["tokens_per_second"], 1), Number(row["ratio_to_plain"], 2, "x"),
               partial ? Number(row["ratio_to_full"], 2, "x") : "-", Number(row["tau"], 2),
               Mega(row["kv_bytes_read_per_step"], 1),
               row["identical"].get<bool>() ? "yes" : "NO"});
  }
  return table.ToString();
}

std::string PassTable(const Json& rows) {
  Table table({"passes", "part+full", "refreshes", "undone", "ms part"});
  for (const Json& row : rows) {
    if (row["budget"] == 0) continue;
    table.Add({row["label"],
               fmt::format("{}+{}", row["partial"]["steps"].get<int64_t>(),
                           row["full"]["steps"].get<int64_t>()),
               ShortReasons(row["refreshes"]),
               std::to_string(row["rolled_back_tokens"].get<int64_t>()),
               HasPartialSteps(row) ? Number(row["partial"]["ms"], 2) : "-"});
  }
  return table.ToString();
}

// The budget whose lines are shown.
int ShownBudget(const Json& rows) {
  int shown = 0;
  for (const Json& row : rows) {
    const int budget = row["budget"];
    if (budget == kUsualBudget) return budget;
    shown = std::max(shown, budget);
  }
  return shown;
}

// "memory (88% of the bytes are K/V)" or "compute (40.2 rows per pass)"
std::string WhatBounds(const Json& row) {
  if (row["bound_by"] == "compute") {
    return fmt::format("compute ({:.1f} rows per pass)", row["rows_per_pass"].get<double>());
  }
  const double kv = row["kv_bytes"];
  const double bytes = kv + row["weight_bytes"].get<double>();
  const double share = bytes > 0 ? kv / bytes : 0;
  return share >= 0.5 ? fmt::format("memory ({:.0f}% of the bytes are K/V)", 100 * share)
                      : fmt::format("memory ({:.0f}% of the bytes are weights)", 100 * (1 - share));
}

std::string PartName(const Json& row) {
  const std::string part = row["part"];
  if (part.empty()) return row["label"];
  return fmt::format("{} {}", row["label"].get<std::string>(), part == "full" ? "replay" : part);
}

std::string Sentence(const Json& row) {
  const double share = row["share_of_bound"];
  std::string text = fmt::format("{}: bound by {}; {:.0f}% of the bound reached", PartName(row),
                                 WhatBounds(row), 100 * share);
  const double drafting = row["draft_share"];
  if (drafting >= 0.005 && row["part"] != "full") {
    text += fmt::format(", drafting is {:.0f}% of the time of all steps", 100 * drafting);
  }
  return WrapText(text + ".", kTerminalColumns) + "\n";
}

// The label of the fastest variant of each mode.
std::set<std::string> FastestLabels(const Json& rows) {
  std::map<std::string, std::pair<double, std::string>> best;
  for (const Json& row : rows) {
    if (row["budget"] > 0 && !HasPartialSteps(row)) continue;
    const double speed = row["tokens_per_second"];
    auto& entry = best[row["mode"]];
    if (entry.second.empty() || speed > entry.first) entry = {speed, row["label"]};
  }
  std::set<std::string> labels;
  for (const auto& [mode, entry] : best) labels.insert(entry.second);
  return labels;
}

}  // namespace

std::string ContextReport(const Json& context) {
  const Json& rows = context["rows"];
  std::string out =
      fmt::format("\n{} tokens of context\n{}", context["context"].get<int>(), SpeedTable(rows));
  const bool any_partial =
      std::any_of(rows.begin(), rows.end(), [](const Json& row) { return row["budget"] > 0; });
  if (any_partial) out += fmt::format("\n{}", PassTable(rows));
  for (const Json& row : rows) {
    if (row["fallbacks"] == 0) continue;
    out += fmt::format("{}: {} fallbacks to full verification (see the log)\n",
                       row["label"].get<std::string>(), row["fallbacks"].get<int64_t>());
  }
  return out;
}

std::string AgreementReport(const Json& agreement) {
  if (agreement.empty()) return "";
  std::set<int> distances;
  for (const Json& row : agreement) {
    for (const Json& each : row["distances"]) distances.insert(each["distance"].get<int>());
  }
  std::vector<std::string> header = {"distance from"};
  for (const int distance : distances) header.push_back(std::to_string(distance));
  header.emplace_back("checked");
  Table table(header);
  for (const Json& row : agreement) {
    std::map<int, std::string> cells;
    int64_t checked = 0;
    for (const Json& each : row["distances"]) {
      const double share = each["disagreed"].get<double>() / each["checked"].get<double>();
      cells[each["distance"]] = Percent(1 - share);
      checked += each["checked"].get<int64_t>();
    }
    std::vector<std::string> line = {row["label"]};
    for (const int distance : distances) {
      line.push_back(cells.contains(distance) ? cells[distance] : "-");
    }
    line.push_back(std::to_string(checked));
    table.Add(line);
  }
  return "\nAgreement with full passes, in %, by distance from the last one\n" + table.ToString();
}

std::string FlatnessReport(const Json& flatness) {
  std::string out;
  const int shown = ShownBudget(flatness);
  for (const Json& row : flatness) {
    if (row["budget"] != shown) continue;
    const Json &far = row["partial"], &base = row["base_partial"];
    const std::string text = fmt::format(
        "{}: a partial step takes {} ms at {} tokens and {} ms at {}, {:.2f}x; of it drafting {} "
        "and {} ms (mean of all steps); it reads {} and {} MB of K/V, for {} and {} rows",
        row["label"].get<std::string>(), Number(far["ms"], 2), row["context"].get<int>(),
        Number(base["ms"], 2), row["base_context"].get<int>(), row["ratio"].get<double>(),
        Number(row["draft_ms"], 2), Number(row["base_draft_ms"], 2), Mega(far["kv_bytes_read"], 1),
        Mega(base["kv_bytes_read"], 1), Number(far["rows"], 1), Number(base["rows"], 1));
    out += WrapText(text, kTerminalColumns) + "\n";
  }
  return out.empty() ? "" : "\nFlatness\n" + out;
}

std::string MemoryReport(const Json& memory) {
  const Json* largest = nullptr;
  for (const Json& row : memory) {
    if (largest == nullptr || row["context"] > (*largest)["context"] ||
        (row["context"] == (*largest)["context"] && row["ratio"] > (*largest)["ratio"])) {
      largest = &row;
    }
  }
  if (largest == nullptr) return "";
  const std::string text = fmt::format(
      "KV cache with what partial verification keeps beside it at {} tokens: {}, {:.3f}x the {} of "
      "full verification",
      (*largest)["context"].get<int>(), FormatBytes((*largest)["kv_bytes"].get<double>()),
      (*largest)["ratio"].get<double>(), FormatBytes((*largest)["full_kv_bytes"].get<double>()));
  return "\nMemory\n" + WrapText(text, kTerminalColumns) + "\n";
}

std::string RecallReport(const Json& recall) {
  if (recall.empty()) return "";
  std::vector<std::string> header = {"right answers, about tokens"};
  for (const Json& bucket : recall[0]["buckets"]) {
    header.push_back(std::to_string(bucket["tokens"].get<int>()));
  }
  Table table(header);
  for (const Json& row : recall) {
    std::vector<std::string> line = {row["label"].get<std::string>() +
                                     (row["budget"] == 0 ? " (full)" : "")};
    for (const Json& bucket : row["buckets"]) {
      line.push_back(
          fmt::format("{}/{}", bucket["right"].get<int>(), bucket["prompts"].get<int>()));
    }
    table.Add(line);
  }
  return fmt::format("\n{}", table.ToString());
}

std::string RooflineReport(const Json& roofline, const Json& context, const Json& peaks) {
  const std::set<std::string> labels = FastestLabels(context["rows"]);
  Table table({"per token", "weights", "KV MB", "MFLOP", "bound ms", "took ms", "share"});
  std::string sentences;
  for (const Json& row : roofline["rows"]) {
    if (!labels.contains(row["label"])) continue;
    table.Add({PartName(row), Mega(row["weight_bytes"], 1), Mega(row["kv_bytes"], 1),
               Mega(row["flops"], 0), Number(row["bound_ms"], 2), Number(row["measured_ms"], 2),
               fmt::format("{:.0f}%", 100 * row["share_of_bound"].get<double>())});
    sentences += Sentence(row);
  }
  return fmt::format(
      "\nRoofline at {} tokens; peaks measured: {:.1f} GB/s, {} {:.0f} GFLOP/s\n{}{}",
      roofline["context"].get<int>(), peaks["bandwidth_gb_per_second"].get<double>(),
      peaks["matrix_kind"].get<std::string>(), peaks["matrix_gflops"].get<double>(),
      table.ToString(), sentences);
}

std::vector<std::string> Differences(const Json& contexts, const Json& recall) {
  std::vector<std::string> lines;
  for (const Json& context : contexts) {
    for (const Json& row : context["rows"]) {
      if (!row["must_be_identical"] || row["identical"]) continue;
      lines.push_back(fmt::format("{} at {} tokens differs from plain decoding",
                                  row["label"].get<std::string>(), context["context"].get<int>()));
    }
  }
  for (const Json& row : recall) {
    int different = 0;
    for (const Json& bucket : row["buckets"]) different += bucket["different"].get<int>();
    if (!row["must_be_identical"] || different == 0) continue;
    lines.push_back(fmt::format("{} differs from full verification on {} recall prompts",
                                row["label"].get<std::string>(), different));
  }
  return lines;
}

}  // namespace talon
