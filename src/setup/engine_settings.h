// From settings to the options of an engine and its drafter, checked.
#ifndef TALON_SETUP_ENGINE_SETTINGS_H_
#define TALON_SETUP_ENGINE_SETTINGS_H_

#include <string>

#include "base/status.h"
#include "setup/config.h"
#include "setup/loader.h"
#include "spec/drafter.h"

namespace talon {

// The method's default, with what the user set.
DraftBudget DraftBudgetOf(const Config& config, const std::string& drafter);

// Fills the options of the engine and the drafter, and the drafter's name. An error names the
// setting, its value and what is valid.
Status FillEngineOptions(const Config& config, LoadedModel* model);

}  // namespace talon

#endif  // TALON_SETUP_ENGINE_SETTINGS_H_
