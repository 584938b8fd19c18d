// Ranks that are processes started by mpirun, or by a scheduler that knows MPI.
#ifndef TALON_SETUP_RANKS_MPI_RANKS_H_
#define TALON_SETUP_RANKS_MPI_RANKS_H_

#include <memory>

#include "base/status.h"
#include "compute/ranks/ranks.h"

namespace talon {

// Whether this build has MPI.
bool HasMpi();

// The processes that were started together with this one. Fails if they are not `size`, and the
// second time in a process. Until SetDeadline, calls wait for two hours: others may still load.
Result<std::unique_ptr<Ranks>> OpenMpiRanks(int size);

}  // namespace talon

#endif  // TALON_SETUP_RANKS_MPI_RANKS_H_
