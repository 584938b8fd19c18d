#include "apps/doctor/report.h"

#include <algorithm>

#include "apps/common/table.h"
#include "setup/wrap_text.h"

namespace talon {
namespace {

constexpr size_t kTextColumn = 21;  // column of a checklist's text
constexpr int kShownDepths = 8;
constexpr double kGoodCoverage = 0.95;
constexpr double kTrustedGap = 1.35;  // between two ways of timing the same pass

// The text in lines of its own column, behind `first` in the first.
std::string Paragraph(const std::string& first, const std::string& text) {
  std::string out = fmt::format("{:<{}}", first, kTextColumn);
  for (const char c : WrapText(text, kTerminalColumns - kTextColumn)) {
    out += c;
    if (c == '\n') out += std::string(kTextColumn, ' ');
  }
  return out + "\n";
}

std::string ContextTable(const ProbeFigures& figures) {
  Table table({"context", "tau", "nodes", "c(T)", "drafting", "predicted", "measured", "adaptive",
               "identical"});
  for (const ContextFigures& one : figures.contexts) {
    table.Add({std::to_string(one.context), fmt::format("{:.2f}", one.fixed.tau),
               fmt::format("{:.1f}", one.fixed.nodes), fmt::format("{:.2f}", one.fixed.verify_cost),
               fmt::format("{:.0f}%", 100 * one.fixed.draft_share),
               fmt::format("{:.2f}x", one.fixed.predicted),
               fmt::format("{:.2f}x", one.fixed.measured),
               fmt::format("{:.2f}x", one.adaptive.measured), one.identical ? "yes" : "NO"});
  }
  return table.ToString();
}

std::string DepthTable(const RequestStats& stats) {
  std::vector<std::string> header = {"depth"}, tried = {"tried"}, accepted = {"accepted"},
                           share = {"share"};
  for (int d = 0; d < kShownDepths && stats.tried_at_depth[d] > 0; ++d) {
    header.push_back(std::to_string(d + 1));
    tried.push_back(std::to_string(stats.tried_at_depth[d]));
    accepted.push_back(std::to_string(stats.accepted_at_depth[d]));
    share.push_back(fmt::format("{:.0f}%", 100.0 * static_cast<double>(stats.accepted_at_depth[d]) /
                                               static_cast<double>(stats.tried_at_depth[d])));
  }
  if (header.size() == 1) return "";
  Table table(header);
  table.Add(tried);
  table.Add(accepted);
  table.Add(share);
  return fmt::format("\n{}", table.ToString());
}

std::string CurveTable(const ProbeFigures& figures) {
  std::vector<std::string> header = {"verify curve"};
  for (const VerifyCurve::Point& point : figures.curve.points()) {
    header.push_back(fmt::format("c({})", point.rows));
  }
  Table table(header);
  for (const ContextFigures& one : figures.contexts) {
    std::vector<std::string> row = {fmt::format("at {}", one.context)};
    for (const VerifyCurve::Point& point : figures.curve.points()) {
      row.push_back(
          fmt::format("{:.2f}", figures.curve.Ratio({.context = one.context}, point.rows)));
    }
    table.Add(row);
  }
  if (figures.curve.points()[0].experts > 0) {
    std::vector<std::string> row = {"experts"};
    for (const VerifyCurve::Point& point : figures.curve.points()) {
      row.push_back(fmt::format("{:.1f}", point.experts));
    }
    table.Add(row);
  }
  return fmt::format("\n{}", table.ToString());
}

// How far the run's own verify passes are from the verify curve, at worst.
struct TimingGap {
  double factor = 1;
  double in_run = 0;
  double curve = 0;
};

TimingGap LargestGap(const ProbeFigures& figures) {
  TimingGap worst;
  for (const ContextFigures& one : figures.contexts) {
    const double in_run = one.fixed.verify_ratio, curve = one.fixed.verify_cost;
    if (in_run <= 0 || curve <= 0) continue;
    const double factor = std::max(in_run / curve, curve / in_run);
    if (factor > worst.factor) worst = {factor, in_run, curve};
  }
  return worst;
}

std::string AdaptiveLine(const ProbeFigures& figures) {
  double tau = 0, nodes = 0, share = 0;
  const auto n = static_cast<double>(figures.contexts.size());
  for (const ContextFigures& one : figures.contexts) {
    tau += one.adaptive.tau / n;
    nodes += one.adaptive.nodes / n;
    share += one.adaptive.draft_share / n;
  }
  return fmt::format(
      "adaptive: tau {:.2f} with {:.1f} nodes a pass, drafting {:.0f}% of the time\n", tau, nodes,
      100 * share);
}

}  // namespace

std::string ChecklistText(const std::vector<CheckLine>& lines) {
  std::string out;
  for (const CheckLine& line : lines) {
    out += Paragraph(fmt::format("{:<7}  {}", VerdictName(line.verdict), line.subject), line.text);
  }
  return out;
}

std::vector<CheckLine> CheckProbe(const ProbeFigures& figures) {
  std::vector<CheckLine> lines;
  lines.push_back(
      {figures.coverage < kGoodCoverage ? Severity::kWarning : Severity::kOk, "coverage",
       fmt::format("{:.1f}% of the generated tokens can be drafted", 100 * figures.coverage)});
  const Severity differs = figures.may_differ ? Severity::kWarning : Severity::kError;
  lines.push_back({figures.identical() ? Severity::kOk : differs, "text",
                   figures.identical()  ? "the same as plain decoding's, token for token"
                   : figures.may_differ ? "differs from plain decoding's, as these settings allow"
                                        : "differs from plain decoding's, which it never should"});
  if (const TimingGap gap = LargestGap(figures); gap.factor > kTrustedGap) {
    lines.push_back({Severity::kWarning, "timing",
                     fmt::format("a verify pass took {:.1f} plain ones here, but c(T) is {:.1f}: "
                                 "perhaps a busy machine; take the speed-ups as rough",
                                 gap.in_run, gap.curve)});
  }
  for (const auto& [reason, count] : figures.fallbacks) {
    lines.push_back({Severity::kWarning, "fallback", fmt::format("{} steps: {}", count, reason)});
  }
  return lines;
}

std::string ProbeTables(const ProbeFigures& figures) {
  return ContextTable(figures) + AdaptiveLine(figures) + DepthTable(figures.fixed_stats) +
         CurveTable(figures);
}

std::string AdviceText(const Advice& advice) {
  std::string text;
  for (const std::string& sentence : advice.limits)
    text += WrapText(sentence, kTerminalColumns) + "\n";
  return text + WrapText("Try next: " + advice.next, kTerminalColumns) + "\n";
}

}  // namespace talon
