#include "serve/http/event_stream.h"

#include "base/json.h"

namespace talon {

void EventStream::Read(std::string_view bytes, const std::function<void(const Json&)>& on_event) {
  unread_ += bytes;
  for (size_t end = 0; (end = unread_.find("\n\n")) != std::string::npos;) {
    ReadEvent(std::string_view(unread_).substr(0, end), on_event);
    unread_.erase(0, end + 2);
  }
}

void EventStream::ReadEvent(std::string_view event,
                            const std::function<void(const Json&)>& on_event) {
  constexpr std::string_view kData = "data: ";
  if (!event.starts_with(kData)) return;
  const std::string_view data = event.substr(kData.size());
  if (data == "[DONE]") {
    complete_ = true;
    return;
  }
  const auto json = ParseJson(data, "event");
  if (!json.ok()) {
    error_ = Unavailable("an event is not JSON");
  } else if (json->contains("error")) {
    const Json& error = (*json)["error"];
    const bool said =
        error.is_object() && error.contains("message") && error["message"].is_string();
    error_ = Unavailable("{}", said ? error["message"].get<std::string>() : error.dump());
  } else {
    on_event(*json);
  }
}

Status EventStream::End() const {
  if (!error_.ok()) return error_;
  return complete_ ? OkStatus() : Unavailable("the stream broke off");
}

}  // namespace talon
