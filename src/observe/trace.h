// A trace of what happened when, as Chrome trace events: a file for ui.perfetto.dev or
// chrome://tracing. Steps and their stages lie on the thread that ran them; each request is a track
// of its own, divided into the phases queued, prompt and decode.
//
// Off by default: every place that records asks ActiveTracer() first. Thread-safe. Memory is one
// fixed write buffer and a few bytes per live request; the file grows with every step, so a trace
// is for a look at a stretch of time, not for months of service.
#ifndef TALON_OBSERVE_TRACE_H_
#define TALON_OBSERVE_TRACE_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"

namespace talon {

enum class RequestPhase { kQueued, kPrompt, kDecode };

class Tracer {
 public:
  using Clock = std::chrono::steady_clock;

  static Result<std::unique_ptr<Tracer>> Open(const std::string& path);
  ~Tracer();  // as Close
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Ends the requests still open and completes the file; a write that failed at any time is
  // reported here. Later calls record nothing.
  Status Close();

  // How the viewer calls the calling thread.
  void NameThread(std::string_view name);
  // Something that this thread did from `begin` to now.
  void Complete(std::string_view name, Clock::time_point begin, std::span<const LogField> args);

  // A request begins in the queue and may change phase any number of times (a preempted one is
  // queued again); entering the phase it is in changes nothing. Unknown ids are ignored, so tracing
  // may start while requests run.
  void BeginRequest(int64_t id, int64_t prompt_tokens);
  void EnterPhase(int64_t id, RequestPhase phase);
  void EndRequest(int64_t id, std::string_view finish_reason, int64_t generated_tokens);

 private:
  struct Event;
  explicit Tracer(std::FILE* file, std::string path);

  void WriteLocked(const Event& event);
  void WriteRequestLocked(const char* type, std::string_view name, int64_t id,
                          std::span<const LogField> args);
  void EndRequestLocked(std::map<int64_t, RequestPhase>::iterator at,
                        std::span<const LogField> args);

  const Clock::time_point opened_ = Clock::now();
  const std::string path_;

  std::mutex mutex_;
  std::FILE* file_ = nullptr;  // null once closed
  bool any_written_ = false;
  bool failed_ = false;
  std::map<int64_t, RequestPhase> requests_;  // begun and not ended
};

// The process's tracer, null: none. Set it before the engine's thread starts and unset it after
// that thread has ended: ranges that are open keep using the one they began with.
Tracer* ActiveTracer();
void SetActiveTracer(Tracer* tracer);

}  // namespace talon

#endif  // TALON_OBSERVE_TRACE_H_
