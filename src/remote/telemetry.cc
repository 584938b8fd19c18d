#include "remote/telemetry.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/file.h"

namespace talon {
namespace {

constexpr const char* kEventNames[] = {
    "pipeline_started",    "round_started",      "rpc_request_sent",   "rpc_response_received",
    "rpc_error",           "round_verified",     "speculation_result", "verify_retry_full_context",
    "pipeline_terminated", "pipeline_completed",
};
static_assert(std::size(kEventNames) == static_cast<size_t>(RemoteEvent::kPipelineCompleted) + 1);

constexpr const char* kOrchestrator = "orchestrator";

// The time line's units.
double Microseconds(double seconds) { return seconds * 1e6; }

// A field of a CSV line, quoted where necessary.
std::string CsvCell(const std::string& text) {
  if (text.find_first_of("\",\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

// {"a":1} and {"b":2} as {"a":1,"args":{"b":2}}.
std::string WithObject(std::string object, const char* key, const std::string& inner) {
  object.pop_back();
  return object + fmt::format(",\"{}\":{}}}", key, inner);
}

// Track numbers of a trace, in order of first use.
class Tracks {
 public:
  int Of(const std::string& name) {
    return numbers_.emplace(name, static_cast<int>(numbers_.size()) + 1).first->second;
  }
  const std::map<std::string, int>& all() const { return numbers_; }

 private:
  std::map<std::string, int> numbers_;
};

}  // namespace

const char* RemoteEventName(RemoteEvent event) { return kEventNames[static_cast<size_t>(event)]; }

const std::vector<std::string>& Telemetry::FieldNames() {
  static const std::vector<std::string> names = {"round_idx",
                                                 "accepted_length",
                                                 "path_depth",
                                                 "tree_node_count",
                                                 "acceptance_rate",
                                                 "bonus_token",
                                                 "delta_token_count",
                                                 "expected_prefix_length",
                                                 "verify_rpc_ms",
                                                 "draft_rpc_ms",
                                                 "overlap_savings_ms",
                                                 "actual_wait_ms",
                                                 "rtt_ms_measured",
                                                 "payload_bytes",
                                                 "proto_decode_ms",
                                                 "current_k",
                                                 "k_pid_error",
                                                 "k_pid_integral",
                                                 "result",
                                                 "code"};
  return names;
}

Telemetry::Telemetry(size_t max_spans, size_t max_events)
    : max_spans_(max_spans), max_events_(max_events) {}

double Telemetry::SecondsOf(Clock::time_point time) const {
  return std::chrono::duration<double>(time - start_).count();
}

Telemetry::Fields Telemetry::Own(std::initializer_list<LogField> fields) {
  Fields owned;
  for (const LogField& field : fields) {
    Value value = std::visit(
        [](const auto& given) -> Value {
          if constexpr (std::is_same_v<std::decay_t<decltype(given)>, std::string_view>) {
            return std::string(given);
          } else {
            return given;
          }
        },
        field.value);
    owned.emplace_back(std::string(field.key), std::move(value));
  }
  return owned;
}

std::vector<LogField> Telemetry::View(const Fields& fields) {
  std::vector<LogField> view;
  for (const auto& [key, value] : fields) {
    std::visit([&, &key = key](const auto& given) { view.emplace_back(key, given); }, value);
  }
  return view;
}

void Telemetry::AddEvent(RemoteEvent event, std::initializer_list<LogField> fields) {
  Event added{.event = event, .time = SecondsOf(Clock::now()), .fields = Own(fields)};
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(std::move(added));
  if (events_.size() <= max_events_) return;
  events_.pop_front();
  ++dropped_events_;
}

void Telemetry::PushLocked(Span span) {
  spans_.push_back(std::move(span));
  if (spans_.size() <= max_spans_) return;
  spans_.pop_front();
  ++dropped_spans_;
}

void Telemetry::AddSpan(std::string_view track, std::string_view name, Clock::time_point begin,
                        Clock::time_point end, std::initializer_list<LogField> fields) {
  Span span{.track = std::string(track),
            .name = std::string(name),
            .begin = SecondsOf(begin),
            .end = SecondsOf(end),
            .fields = Own(fields)};
  const std::lock_guard<std::mutex> lock(mutex_);
  PushLocked(std::move(span));
}

void Telemetry::AddCall(const RemoteCallSpan& call, std::initializer_list<LogField> fields) {
  const double sent = SecondsOf(call.sent);
  const double received = SecondsOf(call.received);
  const double wall = std::clamp(call.worker_wall_seconds, 0.0, std::max(received - sent, 0.0));
  const double model = std::clamp(call.worker_model_seconds, 0.0, wall);
  const double arrived = sent + (received - sent - wall) / 2;
  const std::string name(call.name);
  const std::string worker(call.worker);
  // Verification and the next drafting run at the same time, so each has a track of its own.
  Span rpc{.track = fmt::format("{} calls", call.worker),
           .name = name,
           .begin = sent,
           .end = received,
           .fields = Own(fields)};
  const std::lock_guard<std::mutex> lock(mutex_);
  PushLocked(std::move(rpc));
  if (wall <= 0) return;
  PushLocked({.track = worker, .name = name, .begin = arrived, .end = arrived + wall});
  const double begin = arrived + (wall - model) / 2;
  if (model > 0) {
    PushLocked({.track = worker, .name = "model", .begin = begin, .end = begin + model});
  }
}

size_t Telemetry::spans() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return spans_.size();
}
size_t Telemetry::events() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return events_.size();
}
int64_t Telemetry::dropped_spans() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return dropped_spans_;
}
int64_t Telemetry::dropped_events() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return dropped_events_;
}

std::string Telemetry::ToJson() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = fmt::format("{{\"dropped_spans\":{},\"dropped_events\":{},\n\"spans\":[",
                                 dropped_spans_, dropped_events_);
  const char* separator = "\n";
  for (const Span& span : spans_) {
    const LogField head[] = {
        {"track", span.track}, {"name", span.name}, {"begin_s", span.begin}, {"end_s", span.end}};
    text += separator + WithObject(FieldsAsJson(head), "fields", FieldsAsJson(View(span.fields)));
    separator = ",\n";
  }
  text += "],\n\"events\":[";
  separator = "\n";
  for (const Event& event : events_) {
    const LogField head[] = {{"event", RemoteEventName(event.event)}, {"time_s", event.time}};
    text += separator + WithObject(FieldsAsJson(head), "fields", FieldsAsJson(View(event.fields)));
    separator = ",\n";
  }
  return text + "]}\n";
}

std::string Telemetry::ToCsv() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = "event,time_s";
  for (const std::string& name : FieldNames()) text += "," + name;
  text += "\n";
  for (const Event& event : events_) {
    text += fmt::format("{},{:.6f}", RemoteEventName(event.event), event.time);
    for (const std::string& name : FieldNames()) {
      const auto at = std::find_if(event.fields.begin(), event.fields.end(),
                                   [&](const auto& field) { return field.first == name; });
      text += ",";
      if (at == event.fields.end()) continue;
      text += std::visit([](const auto& value) { return CsvCell(fmt::format("{}", value)); },
                         at->second);
    }
    text += "\n";
  }
  return text;
}

std::string Telemetry::ToTrace() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Tracks tracks;
  std::vector<std::string> lines;
  const auto add = [&](std::string_view name, const char* type, double time,
                       const std::string& track, LogField extra, const Fields& fields) {
    const LogField head[] = {{"name", name},
                             {"ph", type},
                             {"ts", Microseconds(time)},
                             {"pid", 1},
                             {"tid", tracks.Of(track)},
                             extra};
    lines.push_back(WithObject(FieldsAsJson(head), "args", FieldsAsJson(View(fields))));
  };
  for (const Span& span : spans_) {
    add(span.name, "X", span.begin, span.track, {"dur", Microseconds(span.end - span.begin)},
        span.fields);
  }
  for (const Event& event : events_) {
    add(RemoteEventName(event.event), "i", event.time, kOrchestrator, {"s", "t"}, event.fields);
  }
  for (const auto& [name, number] : tracks.all()) {
    const LogField head[] = {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", number}};
    const LogField named("name", name);
    lines.push_back(WithObject(FieldsAsJson(head), "args", FieldsAsJson({&named, 1})));
  }
  return fmt::format("[\n{}\n]\n", fmt::join(lines, ",\n"));
}

Status Telemetry::Write(const std::string& path) const {
  if (path.ends_with(".csv")) return WriteFile(path, ToCsv());
  return WriteFile(path, path.ends_with(".trace.json") ? ToTrace() : ToJson());
}

}  // namespace talon
