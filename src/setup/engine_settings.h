// From settings to the options of an engine and its drafter, checked. Loads nothing.
#ifndef TALON_SETUP_ENGINE_SETTINGS_H_
#define TALON_SETUP_ENGINE_SETTINGS_H_

#include "base/status.h"
#include "compute/backend.h"
#include "engine/engine.h"
#include "setup/config.h"
#include "spec/drafter.h"
#include "spec/drafter_list.h"
#include "spec/drafters/registry.h"

namespace talon {

// What the settings say about an engine. The step's budget is the largest of all drafters, because
// a model is loaded once and may serve several.
struct EngineSettings {
  WeightFormat weights = WeightFormat::kAsStored;
  ActivationFormat activations = ActivationFormat::kAuto;
  EngineOptions engine;
  DrafterList drafters;     // none where speculation is off
  bool head_found = false;  // the drafters need the head beside the model (draft_choice.h)
  DrafterOptions drafter;   // without what a loaded model adds: budget, corpus, remote
};

// An error names the setting, its value and what is valid.
Result<EngineSettings> MakeEngineSettings(const Config& config);

// The method's default, with what the user set.
DraftBudget DraftBudgetOf(const Config& config, const DrafterList& drafters);

// The settings of partial verification. They are checked whether or not SpecPV is enabled.
Result<SpecPvConfig> MakeSpecPvConfig(const Config& config);

// False: plain decoding, whatever the method.
inline bool Speculates(const Config& config) {
  return config.speculative.enable_speculative_decoding && config.speculative.enable_target_tree;
}

}  // namespace talon

#endif  // TALON_SETUP_ENGINE_SETTINGS_H_
