#include <gtest/gtest.h>

#include "apps/doctor/advice.h"
#include "apps/doctor/alternatives.h"
#include "apps/doctor/checks.h"
#include "apps/doctor/report.h"
#include "apps/doctor/text.h"

namespace talon {
namespace {

RequestStats Depths(std::initializer_list<double> shares) {
  RequestStats stats;
  int depth = 0;
  for (const double share : shares) {
    stats.tried_at_depth[depth] = 100;
    stats.accepted_at_depth[depth++] = static_cast<int64_t>(100 * share);
  }
  return stats;
}

ModeFigures Mode(double tau, double verify_cost, double draft_cost) {
  const double speed = tau / (verify_cost + draft_cost);
  return {.tau = tau,
          .nodes = 8,
          .verify_cost = verify_cost,
          .draft_cost = draft_cost,
          .draft_share = draft_cost / (verify_cost + draft_cost),
          .predicted = speed,
          .measured = speed};
}

// Both contexts alike, all depths accepted well.
ProbeFigures Figures(const ModeFigures& mode) {
  ProbeFigures figures;
  figures.contexts = {{.context = 128, .fixed = mode, .adaptive = mode},
                      {.context = 4096, .fixed = mode, .adaptive = mode}};
  figures.fixed_stats = Depths({0.8, 0.6, 0.5, 0.4, 0.3});
  return figures;
}

const DraftSettings kSettings = {
    .kind = "EAGLE3", .budget = {.max_nodes = 8, .max_depth = 5, .top_k = 4}, .draft_vocab = 4096};

// A better reading of the head comes before another text, on which tau is another thing.
TEST(DoctorAlternatives, ReadingsComeBeforeOtherTexts) {
  std::vector<AlternativeFigures> figures = {
      {.name = "as it is", .tau = 1.5},
      {.name = "talk", .change = "judge it by talk", .tau = 3, .other_text = true},
      {.name = "rope", .change = "take the rope", .tau = 2},
      {.name = "norm", .loads = false}};
  EXPECT_NE(AlternativesText(figures, 4).find("take the rope"), std::string::npos);
  figures[2].tau = 1.6;
  EXPECT_NE(AlternativesText(figures, 4).find("judge it by talk"), std::string::npos);
  figures[1].tau = 1.6;
  EXPECT_NE(AlternativesText(figures, 4).find("No other reading"), std::string::npos);
  EXPECT_NE(AlternativesText(figures, 4).find("does not load"), std::string::npos);
}

TEST(DoctorAdvice, DearVerificationAsksForFewerNodes) {
  const Advice advice = Advise(Figures(Mode(3.3, 2.0, 0.1)), kSettings);
  EXPECT_EQ(advice.limit, "verification");
  EXPECT_NE(advice.limits[0].find("c(8) = 2.0"), std::string::npos) << advice.limits[0];
  EXPECT_EQ(advice.next, "--speculative-num-draft-tokens 4");
}

TEST(DoctorAdvice, AdaptiveIsNamedWhereItDoesBetter) {
  ProbeFigures figures = Figures(Mode(3.3, 2.0, 0.1));
  for (ContextFigures& one : figures.contexts) one.adaptive.measured *= 1.2;
  EXPECT_NE(Advise(figures, kSettings).next.find("--speculative-adaptive true"), std::string::npos);
}

TEST(DoctorAdvice, DearDraftingAsksForLighterWeightsThenFewerSteps) {
  const ProbeFigures figures = Figures(Mode(3.3, 1.1, 0.7));
  DraftSettings settings = kSettings;
  const Advice advice = Advise(figures, settings);
  EXPECT_EQ(advice.limit, "drafting");
  EXPECT_NE(advice.limits[0].find("39%"), std::string::npos) << advice.limits[0];
  EXPECT_EQ(advice.next, "--speculative-draft-weights int8");
  for (const char* light : {"int8", "int4"}) {
    settings.draft_weights = light;
    EXPECT_EQ(Advise(figures, settings).next, "--speculative-num-steps 2");
  }
}

TEST(DoctorAdvice, PoorAcceptanceAsksForTraining) {
  ProbeFigures figures = Figures(Mode(1.7, 1.2, 0.1));
  figures.fixed_stats = Depths({0.45, 0.35, 0.1, 0.05});
  const Advice advice = Advise(figures, kSettings);
  EXPECT_EQ(advice.limit, "acceptance");
  EXPECT_NE(advice.limits[0].find("45%"), std::string::npos) << advice.limits[0];
  EXPECT_NE(advice.limits[0].find("tools/train"), std::string::npos);
  EXPECT_NE(advice.next.find("--speculative-num-steps 2"), std::string::npos) << advice.next;
}

TEST(DoctorAdvice, FallWithContextAsksForAWindow) {
  ProbeFigures figures = Figures(Mode(3.2, 1.1, 0.1));
  figures.contexts.back().fixed = Mode(1.4, 1.1, 0.1);
  DraftSettings settings = kSettings;
  const Advice advice = Advise(figures, settings);
  EXPECT_EQ(advice.limit, "context");
  EXPECT_NE(advice.limits[0].find("from 3.2 at 128 tokens to 1.4 at 4096"), std::string::npos);
  EXPECT_EQ(advice.next, "--speculative-draft-window-size 1024");
  settings.window = 1024;
  EXPECT_NE(Advise(figures, settings).next.find("tools/train"), std::string::npos);
}

TEST(DoctorAdvice, TokensOutsideOfTheDraftVocabulary) {
  ProbeFigures figures = Figures(Mode(3.0, 1.1, 0.1));
  figures.coverage = 0.7;
  EXPECT_EQ(Advise(figures, kSettings).limit, "vocabulary");
}

TEST(DoctorAdvice, NothingToSayAndTooLittleToSayIt) {
  ProbeFigures figures = Figures(Mode(3.0, 1.05, 0.1));
  EXPECT_EQ(Advise(figures, kSettings).limit, "none");
  figures.fixed_stats = {};
  EXPECT_EQ(Advise(figures, kSettings).limit, "unknown");
}

TEST(DoctorProbe, SpeedUpsFollowFromTheCounts) {
  const VerifyCurve curve({{1, 0.010, 0}, {4, 0.020, 0}});
  RequestStats plain, mode;
  plain.passes = plain.emitted = 100;
  plain.decode_seconds = 1;
  mode.passes = 40;
  mode.emitted = 100;
  mode.drafted = 120;
  mode.decode_seconds = 1;
  mode.draft_seconds = 0.2;
  const ModeFigures figures = FiguresOf(mode, plain, curve, 512);
  EXPECT_DOUBLE_EQ(figures.tau, 2.5);
  EXPECT_DOUBLE_EQ(figures.nodes, 4);
  EXPECT_DOUBLE_EQ(figures.verify_cost, 2);
  EXPECT_DOUBLE_EQ(figures.draft_cost, 0.5);
  EXPECT_DOUBLE_EQ(figures.predicted, 1);
  EXPECT_DOUBLE_EQ(figures.measured, 1);
  EXPECT_DOUBLE_EQ(figures.draft_share, 0.2);
}

TEST(DoctorProbe, ContextsAreSortedAndCutToWhatFits) {
  const auto fitted = FitContexts({4096, 128, 1024, 9000}, 2048, 96);
  ASSERT_TRUE(fitted.ok());
  EXPECT_EQ(*fitted, (std::vector<int>{128, 1024, 1951}));
  EXPECT_FALSE(FitContexts({128}, 64, 96).ok());
}

TEST(DoctorText, ContextsOfAllLengthsEndAlike) {
  const ProbeText text{.begin = {0}, .documents = {{1, 2, 3}, {4, 5}}};
  EXPECT_EQ(text.Context(0, 3), (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(text.Context(0, 6), (std::vector<int32_t>{0, 4, 5, 1, 2, 3}));
  EXPECT_EQ(text.Context(1, 8), (std::vector<int32_t>{0, 4, 5, 1, 2, 3, 4, 5}));
}

CheckLine LineOf(const std::vector<CheckLine>& lines, const std::string& subject) {
  for (const CheckLine& line : lines) {
    if (line.subject == subject) return line;
  }
  ADD_FAILURE() << "no line " << subject;
  return {};
}

TEST(DoctorChecks, PositionsPastTheHeadsWithoutScaling) {
  DraftFacts facts{.kind = "EAGLE3",
                   .target_vocab = 8192,
                   .draft_vocab = 4096,
                   .capture_layers = {2, 8, 13},
                   .capture_source = "the default",
                   .draft_positions = 2048,
                   .max_length = 32768,
                   .target_types = "bf16",
                   .draft_types = "f32",
                   .target_weight_bytes = 1000,
                   .draft_weight_bytes = 100};
  Config config;
  config.speculative.draft_weights = "auto";
  const auto lines = [&] { return CheckDraft(facts, config, kSettings.budget); };
  EXPECT_EQ(LineOf(lines(), "positions").verdict, Severity::kWarning);
  EXPECT_EQ(LineOf(lines(), "types").verdict, Severity::kWarning);
  EXPECT_EQ(LineOf(lines(), "memory").verdict, Severity::kOk);
  EXPECT_NE(LineOf(lines(), "vocabulary").text.find("(50%)"), std::string::npos);
  EXPECT_NE(LineOf(lines(), "layers").text.find("2, 8, 13"), std::string::npos);
  facts.draft_rope = RopeKind::kYarn;
  EXPECT_EQ(LineOf(lines(), "positions").verdict, Severity::kOk);
  facts.draft_types = "bf16";
  EXPECT_EQ(LineOf(lines(), "types").verdict, Severity::kOk);
  facts.draft_weight_bytes = 500;
  EXPECT_EQ(LineOf(lines(), "memory").verdict, Severity::kWarning);
}

TEST(DoctorReport, DifferenceIsAnErrorUnlessAcceptanceIsLossy) {
  ProbeFigures figures = Figures(Mode(3, 1.1, 0.1));
  EXPECT_EQ(LineOf(CheckProbe(figures), "text").verdict, Severity::kOk);
  figures.contexts[1].identical = false;
  EXPECT_EQ(LineOf(CheckProbe(figures), "text").verdict, Severity::kError);
  figures.may_differ = true;
  EXPECT_EQ(LineOf(CheckProbe(figures), "text").verdict, Severity::kWarning);
}

}  // namespace
}  // namespace talon
