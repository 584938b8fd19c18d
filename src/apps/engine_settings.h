// From settings to the options of an engine and its drafter, checked.
#ifndef TALON_APPS_ENGINE_SETTINGS_H_
#define TALON_APPS_ENGINE_SETTINGS_H_

#include <string>

#include "apps/config.h"
#include "apps/loader.h"
#include "base/status.h"
#include "spec/drafter.h"

namespace talon {

// The method's default, with what the user set.
DraftBudget DraftBudgetOf(const Config& config, const std::string& drafter);

// Fills the options of the engine and the drafter, and the drafter's name. An error names the
// setting, its value and what is valid.
Status FillEngineOptions(const Config& config, LoadedModel* model);

}  // namespace talon

#endif  // TALON_APPS_ENGINE_SETTINGS_H_
