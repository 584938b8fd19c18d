// Names a stretch of host time: an event of the trace where there is one (observe/trace.h), and for
// profilers an NVTX range in builds with CUDA.
#ifndef TALON_OBSERVE_STAGE_RANGE_H_
#define TALON_OBSERVE_STAGE_RANGE_H_

#include <vector>

#include "observe/trace.h"

namespace talon {

// Told of every range as it begins and ends, for measurements.
class StageListener {
 public:
  virtual ~StageListener() = default;
  virtual void Begin(const char* name) = 0;
  virtual void End(const char* name) = 0;
};
// The process's listener, null: none. Not to be changed while ranges are open.
void SetStageListener(StageListener* listener);

class StageRange {
 public:
  // `name` outlives the range.
  explicit StageRange(const char* name);
  ~StageRange();
  StageRange(const StageRange&) = delete;
  StageRange& operator=(const StageRange&) = delete;

  // A fact about the stretch, for the trace. `key`, and a value that is text, outlive the range.
  template <typename T>
  void Note(const char* key, const T& value) {
    if (tracer_ != nullptr) notes_.emplace_back(key, value);
  }

 private:
  const char* const name_;
  Tracer* const tracer_;
  Tracer::Clock::time_point begin_;
  std::vector<LogField> notes_;
};

}  // namespace talon

#endif  // TALON_OBSERVE_STAGE_RANGE_H_
