// `--trace FILE`: the process's trace, from its opening to the end of the command.
#ifndef TALON_SETUP_TRACE_FILE_H_
#define TALON_SETUP_TRACE_FILE_H_

#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "observe/trace.h"

namespace talon {

class TraceFile {
 public:
  static Result<std::unique_ptr<TraceFile>> Open(const std::string& path) {
    TALON_ASSIGN_OR_RETURN(auto tracer, Tracer::Open(path));
    SetActiveTracer(tracer.get());
    return std::unique_ptr<TraceFile>(new TraceFile(std::move(tracer)));
  }
  // REQUIRES: no engine runs any more.
  ~TraceFile() {
    SetActiveTracer(nullptr);
    if (const Status status = tracer_->Close(); !status.ok()) LogWarning("{}", status.message());
  }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

 private:
  explicit TraceFile(std::unique_ptr<Tracer> tracer) : tracer_(std::move(tracer)) {}
  std::unique_ptr<Tracer> tracer_;
};

}  // namespace talon

#endif  // TALON_SETUP_TRACE_FILE_H_
