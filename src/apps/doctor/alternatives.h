// Other readings of a head: where it accepts less than its card claims, perhaps one of them is what
// it was trained with.
#ifndef TALON_APPS_DOCTOR_ALTERNATIVES_H_
#define TALON_APPS_DOCTOR_ALTERNATIVES_H_

#include <string>
#include <vector>

#include "apps/doctor/checks.h"
#include "apps/doctor/text.h"
#include "base/json.h"
#include "base/status.h"
#include "setup/config.h"
#include "setup/loader.h"

namespace talon {

// One thing that is read differently.
struct Alternative {
  std::string name;
  std::string change;               // how a user makes it so
  Json config;                      // the head's config.json with it
  std::vector<int> capture_layers;  // instead of the config's; none: as it says
};

// Rope, captured layers and norms, as far as `config` (the head's config.json) has another choice.
std::vector<Alternative> AlternativesOf(const Json& config, const DraftFacts& facts);

struct AlternativeFigures {
  std::string name;
  std::string change;
  double tau = 0;
  bool loads = true;        // false: the head does not fit such a config
  bool other_text = false;  // its tau is not that of the probe's text
};

// Tokens per pass of each reading, and of the head as it is on conversations (where the model has a
// chat template). The first is the head as it is on the probe's text.
Result<std::vector<AlternativeFigures>> TryAlternatives(LoadedModel* model, const Config& config,
                                                        const DraftFacts& facts,
                                                        const ProbeText& text);

// A table, and in words what raises acceptance.
std::string AlternativesText(const std::vector<AlternativeFigures>& figures, double claimed);
Json AlternativesJson(const std::vector<AlternativeFigures>& figures);

}  // namespace talon

#endif  // TALON_APPS_DOCTOR_ALTERNATIVES_H_
