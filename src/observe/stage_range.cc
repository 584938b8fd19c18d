#include "observe/stage_range.h"

#ifdef TALON_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace talon {
namespace {

#ifdef TALON_HAS_NVTX
void PushProfilerRange(const char* name) { nvtxRangePushA(name); }
void PopProfilerRange() { nvtxRangePop(); }
#else
void PushProfilerRange(const char* /*name*/) {}
void PopProfilerRange() {}
#endif

}  // namespace

StageRange::StageRange(const char* name) : name_(name), tracer_(ActiveTracer()) {
  PushProfilerRange(name);
  if (tracer_ != nullptr) begin_ = Tracer::Clock::now();
}

StageRange::~StageRange() {
  if (tracer_ != nullptr) tracer_->Complete(name_, begin_, notes_);
  PopProfilerRange();
}

}  // namespace talon
