// Names a stretch of host time for profilers: an NVTX range in builds with CUDA, nothing elsewhere.
#ifndef TALON_OBSERVE_STAGE_RANGE_H_
#define TALON_OBSERVE_STAGE_RANGE_H_

namespace talon {

class StageRange {
 public:
  explicit StageRange(const char* name);
  ~StageRange();
  StageRange(const StageRange&) = delete;
  StageRange& operator=(const StageRange&) = delete;
};

}  // namespace talon

#endif  // TALON_OBSERVE_STAGE_RANGE_H_
