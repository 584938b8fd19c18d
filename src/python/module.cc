// The extension module talon._talon. Users import the package python/talon.
#include <pybind11/pybind11.h>

#include "python/drafter.h"
#include "python/engine.h"
#include "python/model.h"
#include "python/settings.h"
#include "python/tree.h"
#include "setup/device.h"
#include "setup/ranks/mpi_ranks.h"

PYBIND11_MODULE(_talon, module) {
  module.doc() = "The engine of the package talon.";
  module.attr("version") = TALON_VERSION;
  module.attr("devices") = talon::BuildDevices();
  module.attr("has_mpi") = talon::HasMpi();
  talon::BindSettings(&module);
  talon::BindTree(&module);
  talon::BindBudget(&module);
  talon::BindEngine(&module);
  talon::BindModel(&module);
}
