// The client's side of an answer that is streamed as server-sent events.
#ifndef TALON_SERVE_HTTP_EVENT_STREAM_H_
#define TALON_SERVE_HTTP_EVENT_STREAM_H_

#include <functional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

class EventStream {
 public:
  // Adds bytes as they arrive, and gives on the events that are complete. Errors and the end are
  // kept for End().
  void Read(std::string_view bytes, const std::function<void(const Json&)>& on_event);
  // After the last bytes: whether the answer is complete.
  Status End() const;
  // What was not an event: the body of an answer that is an error.
  const std::string& unread() const { return unread_; }

 private:
  void ReadEvent(std::string_view event, const std::function<void(const Json&)>& on_event);

  std::string unread_;
  bool complete_ = false;
  Status error_;
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_EVENT_STREAM_H_
