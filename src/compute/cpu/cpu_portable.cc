// The CPU backend of builds without Highway: the reference's plain loops under its name.
#include "compute/cpu/cpu_backend.h"
#include "compute/reference/reference_backend.h"

namespace talon {

std::unique_ptr<Backend> NewCpuBackend(int /*num_threads*/, bool /*touch_memory*/, bool /*amx*/) {
  return NewReferenceBackend("cpu", "cpu, portable (built without Highway)");
}

}  // namespace talon
