// The rounds of a remote generation: a bounded number of events and of spans of both sides, for
// export as JSON, CSV or a Perfetto trace.
//
// The oldest are dropped at the limit, and counted. Thread-safe.
#ifndef TALON_REMOTE_TELEMETRY_H_
#define TALON_REMOTE_TELEMETRY_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace talon {

// The kinds of events; exported with these names in snake_case.
enum class RemoteEvent {
  kPipelineStarted,
  kRoundStarted,
  kRpcRequestSent,
  kRpcResponseReceived,
  kRpcError,
  kRoundVerified,
  kSpeculationResult,  // result: hit, miss, skipped
  kVerifyRetryFullContext,
  kPipelineTerminated,
  kPipelineCompleted,
};
const char* RemoteEventName(RemoteEvent event);

// A remote call as the client measured it, with the times that the worker reported.
struct RemoteCallSpan {
  std::string_view name;    // "verify", "draft"
  std::string_view worker;  // "target", "draft"
  std::chrono::steady_clock::time_point sent;
  std::chrono::steady_clock::time_point received;
  double worker_wall_seconds = 0;   // 0: not known
  double worker_model_seconds = 0;  // part of worker_wall_seconds
};

class Telemetry {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMaxSpans = 10000;
  static constexpr size_t kMaxEvents = 40000;

  explicit Telemetry(size_t max_spans = kMaxSpans, size_t max_events = kMaxEvents);

  // Fields have the names of FieldNames(), or others of the caller's (JSON and trace only).
  void AddEvent(RemoteEvent event, std::initializer_list<LogField> fields);
  // A span on the time line of `track` ("orchestrator").
  void AddSpan(std::string_view track, std::string_view name, Clock::time_point begin,
               Clock::time_point end, std::initializer_list<LogField> fields = {});
  // A span on the orchestrator's time line and, if the worker reported its times, one on the
  // worker's, centred in the call because the clocks differ.
  void AddCall(const RemoteCallSpan& call, std::initializer_list<LogField> fields = {});

  size_t spans() const;
  size_t events() const;
  int64_t dropped_spans() const;
  int64_t dropped_events() const;

  std::string ToJson() const;
  std::string ToCsv() const;    // events, one column for each of FieldNames()
  std::string ToTrace() const;  // Chrome trace events, for ui.perfetto.dev
  // By the file's name: .csv, .trace.json, else JSON.
  Status Write(const std::string& path) const;

  static const std::vector<std::string>& FieldNames();

 private:
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string>;
  using Fields = std::vector<std::pair<std::string, Value>>;
  struct Event {
    RemoteEvent event;
    double time;  // seconds since the start
    Fields fields;
  };
  struct Span {
    std::string track;
    std::string name;
    double begin;
    double end;
    Fields fields;
  };

  static Fields Own(std::initializer_list<LogField> fields);
  static std::vector<LogField> View(const Fields& fields);
  double SecondsOf(Clock::time_point time) const;
  void PushLocked(Span span);

  const Clock::time_point start_ = Clock::now();
  const size_t max_spans_;
  const size_t max_events_;

  mutable std::mutex mutex_;
  std::deque<Span> spans_;
  std::deque<Event> events_;
  int64_t dropped_spans_ = 0;
  int64_t dropped_events_ = 0;
};

}  // namespace talon

#endif  // TALON_REMOTE_TELEMETRY_H_
