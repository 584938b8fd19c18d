#include "observe/stage_range.h"

#ifdef TALON_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace talon {

#ifdef TALON_HAS_NVTX
StageRange::StageRange(const char* name) { nvtxRangePushA(name); }
StageRange::~StageRange() { nvtxRangePop(); }
#else
StageRange::StageRange(const char* /*name*/) {}
StageRange::~StageRange() = default;
#endif

}  // namespace talon
