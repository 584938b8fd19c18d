// The probe of `talon doctor`: a short run of a draft beside plain decoding, and its figures.
#ifndef TALON_APPS_DOCTOR_PROBE_H_
#define TALON_APPS_DOCTOR_PROBE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/doctor/text.h"
#include "base/json_fwd.h"
#include "base/status.h"
#include "engine/engine.h"
#include "setup/config.h"
#include "setup/loader.h"
#include "spec/policy/verify_curve.h"

namespace talon {

// One way of decoding against the plain one. Costs are in plain steps.
struct ModeFigures {
  double tau = 0;
  double nodes = 0;         // nodes of a pass, root included
  double verify_cost = 0;   // c(nodes)
  double verify_ratio = 0;  // the same as the run itself had it, with its trees
  double draft_cost = 0;    // cost for a step
  double draft_share = 0;   // share of the time
  double predicted = 0;     // tau / (verify_cost + draft_cost)
  double measured = 0;      // speed-up
  double tokens_per_second = 0;
};
ModeFigures FiguresOf(const RequestStats& mode, const RequestStats& plain, const VerifyCurve& curve,
                      int context);

struct ContextFigures {
  int context = 0;  // tokens before the first that is generated
  double plain_tokens_per_second = 0;
  ModeFigures fixed;     // the whole tree of the settings at each step
  ModeFigures adaptive;  // what the adaptive policy makes of it
  bool identical = true;
  RequestStats fixed_stats;
};

struct ProbeFigures {
  std::string text;  // where it is from
  bool random_text = false;
  int texts = 0;                         // at each length
  std::vector<ContextFigures> contexts;  // by length
  RequestStats fixed_stats;              // sums over all lengths
  double coverage = 1;                   // share of the plain tokens that the draft can name
  VerifyCurve curve;
  std::map<std::string, int64_t> fallbacks;  // fallbacks of the fixed tree, by reason

  bool may_differ = false;  // from plain decoding: acceptance is lossy, or draws differently

  bool identical() const;
};

struct ProbeOptions {
  std::vector<int> contexts = {128, 1024, 4096};
  int texts = 3;  // at each length, fewer at great ones
  int repeats = 1;
};

// The three ways side by side, each with an engine of its own for one sequence.
struct ProbeEngines {
  std::unique_ptr<Engine> plain, fixed, adaptive;
};

// Contexts in ascending order, those too long for the model and `max_tokens` cut to what fits.
Result<std::vector<int>> FitContexts(std::vector<int> contexts, int max_length, int max_tokens);

// REQUIRES: fitted contexts. Measures the model's verify curve if it has none.
Result<ProbeEngines> MakeProbeEngines(LoadedModel* model, const Config& config,
                                      const std::string& kind, const std::vector<int>& contexts);

// `covered` [vocabulary]: the tokens that the draft can name.
Result<ProbeFigures> RunProbe(const LoadedModel& model, const Config& config,
                              const ProbeOptions& options, const ProbeText& text,
                              const std::vector<bool>& covered, ProbeEngines* engines);

Json ProbeJson(const ProbeFigures& figures);

}  // namespace talon

#endif  // TALON_APPS_DOCTOR_PROBE_H_
