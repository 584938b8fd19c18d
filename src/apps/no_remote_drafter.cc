// Stands in for REMOTE where there is no gRPC: in builds without it, and in the Python package.
#include "apps/run_remote.h"

namespace talon {

Result<std::unique_ptr<Drafter>> MakeRemoteDrafter(const Config&, const DraftBudget&,
                                                   const Tokenizer*, const DrafterTarget&) {
  return Unimplemented("method REMOTE: not here, this is built without gRPC");
}

}  // namespace talon
