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

StageListener* stage_listener = nullptr;

}  // namespace

void SetStageListener(StageListener* listener) { stage_listener = listener; }

StageRange::StageRange(const char* name) : name_(name), tracer_(ActiveTracer()) {
  PushProfilerRange(name);
  if (stage_listener != nullptr) stage_listener->Begin(name);
  if (tracer_ != nullptr) begin_ = Tracer::Clock::now();
}

StageRange::~StageRange() {
  if (tracer_ != nullptr) tracer_->Complete(name_, begin_, notes_);
  if (stage_listener != nullptr) stage_listener->End(name_);
  PopProfilerRange();
}

}  // namespace talon
