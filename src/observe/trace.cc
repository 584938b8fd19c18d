#include "observe/trace.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace talon {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

std::atomic<Tracer*> active_tracer = nullptr;

// Small numbers in order of first use read better in a viewer than the system's ids.
int ThreadNumber() {
  static std::atomic<int> next = 1;
  thread_local const int number = next++;
  return number;
}

double Microseconds(Tracer::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::string_view PhaseName(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::kQueued:
      return "queued";
    case RequestPhase::kPrompt:
      return "prompt";
    case RequestPhase::kDecode:
      return "decode";
  }
  return "unknown";
}

}  // namespace

// What the format calls ph, name, ts; `extra` are further fields of the type.
struct Tracer::Event {
  std::string_view type;
  std::string_view name;
  double time = 0;  // microseconds since the trace began
  std::vector<LogField> extra;
  std::span<const LogField> args;
};

Result<std::unique_ptr<Tracer>> Tracer::Open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return InvalidArgument("trace: {}: {}", path, std::strerror(errno));
  std::setvbuf(file, nullptr, _IOFBF, kBufferBytes);
  return std::unique_ptr<Tracer>(new Tracer(file, path));
}

// The array form of the format: readers accept it without its end too, should the process die.
Tracer::Tracer(std::FILE* file, std::string path) : path_(std::move(path)), file_(file) {
  const LogField name("name", "talon");
  WriteLocked({.type = "M", .name = "process_name", .args = {&name, 1}});
}

Tracer::~Tracer() {
  const Status status = Close();
  if (!status.ok()) LogWarning("{}", status.message());
}

Status Tracer::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (file_ == nullptr) return OkStatus();
  while (!requests_.empty()) EndRequestLocked(requests_.begin(), {});
  failed_ |= std::fputs("\n]\n", file_) < 0;
  failed_ |= std::fclose(file_) != 0;
  file_ = nullptr;
  return failed_ ? Internal("trace: {}: not all of it could be written", path_) : OkStatus();
}

void Tracer::NameThread(std::string_view name) {
  const LogField field("name", name);
  const std::lock_guard<std::mutex> lock(mutex_);
  WriteLocked({.type = "M", .name = "thread_name", .args = {&field, 1}});
}

void Tracer::Complete(std::string_view name, Clock::time_point begin,
                      std::span<const LogField> args) {
  const double duration = Microseconds(Clock::now() - begin);
  const std::lock_guard<std::mutex> lock(mutex_);
  WriteLocked({.type = "X",
               .name = name,
               .time = Microseconds(begin - opened_),
               .extra = {{"dur", duration}},
               .args = args});
}

void Tracer::BeginRequest(int64_t id, int64_t prompt_tokens) {
  const LogField field("prompt_tokens", prompt_tokens);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (file_ == nullptr || !requests_.emplace(id, RequestPhase::kQueued).second) return;
  WriteRequestLocked("b", "request", id, {&field, 1});
  WriteRequestLocked("b", PhaseName(RequestPhase::kQueued), id, {});
}

void Tracer::EnterPhase(int64_t id, RequestPhase phase) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = requests_.find(id);
  if (at == requests_.end() || at->second == phase) return;
  WriteRequestLocked("e", PhaseName(at->second), id, {});
  WriteRequestLocked("b", PhaseName(phase), id, {});
  at->second = phase;
}

void Tracer::EndRequest(int64_t id, std::string_view finish_reason, int64_t generated_tokens) {
  const LogField fields[] = {{"finish_reason", finish_reason},
                             {"generated_tokens", generated_tokens}};
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = requests_.find(id);
  if (at != requests_.end()) EndRequestLocked(at, fields);
}

void Tracer::EndRequestLocked(std::map<int64_t, RequestPhase>::iterator at,
                              std::span<const LogField> args) {
  const auto [id, phase] = *at;
  requests_.erase(at);
  WriteRequestLocked("e", PhaseName(phase), id, {});
  WriteRequestLocked("e", "request", id, args);
}

void Tracer::WriteRequestLocked(const char* type, std::string_view name, int64_t id,
                                std::span<const LogField> args) {
  WriteLocked({.type = type,
               .name = name,
               .time = Microseconds(Clock::now() - opened_),
               .extra = {{"cat", "request"}, {"id", id}},
               .args = args});
}

void Tracer::WriteLocked(const Event& event) {
  if (file_ == nullptr || failed_) return;
  std::vector<LogField> fields = {{"name", event.name},
                                  {"ph", event.type},
                                  {"ts", event.time},
                                  {"pid", 1},
                                  {"tid", ThreadNumber()}};
  fields.insert(fields.end(), event.extra.begin(), event.extra.end());
  std::string line = any_written_ ? ",\n" : "[\n";
  line += FieldsAsJson(fields);
  if (!event.args.empty()) {
    line.pop_back();
    line += ",\"args\":" + FieldsAsJson(event.args) + "}";
  }
  any_written_ = true;
  failed_ = std::fwrite(line.data(), 1, line.size(), file_) != line.size();
}

Tracer* ActiveTracer() { return active_tracer.load(std::memory_order_acquire); }

void SetActiveTracer(Tracer* tracer) { active_tracer.store(tracer, std::memory_order_release); }

}  // namespace talon
