// The table of settings (setup/settings.h) for Python: plain values by key. The Python classes are
// made from it.
#ifndef TALON_PYTHON_SETTINGS_H_
#define TALON_PYTHON_SETTINGS_H_

#include <pybind11/pybind11.h>

#include <string>

#include "setup/settings.h"

namespace talon {

// Sets what `values` has of a set. Unknown keys and values of a wrong type are Python errors.
void ApplyValues(const pybind11::dict& values, SettingSet set, Config* config);

void BindSettings(pybind11::module_* module);

}  // namespace talon

#endif  // TALON_PYTHON_SETTINGS_H_
