// Builds without MPI.
#include "setup/ranks/mpi_ranks.h"

namespace talon {

bool HasMpi() { return false; }

Result<std::unique_ptr<Ranks>> OpenMpiRanks(int size) {
  return Unimplemented("tensor_parallel: {} ranks need MPI, and this is built without it", size);
}

}  // namespace talon
