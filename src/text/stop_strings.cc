#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/unicode.h"

namespace talon {
namespace {

// The table of Knuth, Morris and Pratt.
std::vector<size_t> Borders(std::string_view text) {
  std::vector<size_t> border(text.size() + 1, 0);
  for (size_t i = 1, length = 0; i < text.size(); ++i) {
    while (length > 0 && text[length] != text[i]) length = border[length];
    if (text[length] == text[i]) ++length;
    border[i + 1] = length;
  }
  return border;
}

Status CheckStop(const std::string& stop, size_t index) {
  if (stop.empty()) return InvalidArgument("stop string {} is empty", index);
  if (stop.size() > StopMatcher::kMaxStopBytes) {
    return InvalidArgument("stop string {}: {} bytes, limit {}", index, stop.size(),
                           StopMatcher::kMaxStopBytes);
  }
  if (const auto offset = FindInvalidUtf8(stop)) {
    return InvalidArgument("stop string {}: not valid UTF-8 at byte {}", index, *offset);
  }
  return OkStatus();
}

}  // namespace

Result<StopMatcher> StopMatcher::Create(std::vector<std::string> stops) {
  if (stops.size() > kMaxStops) {
    return InvalidArgument("{} stop strings, limit {}", stops.size(), kMaxStops);
  }
  std::vector<Pattern> patterns;
  patterns.reserve(stops.size());
  for (std::string& stop : stops) {
    TALON_RETURN_IF_ERROR(CheckStop(stop, patterns.size()));
    std::vector<size_t> border = Borders(stop);
    patterns.push_back({std::move(stop), std::move(border)});
  }
  StopMatcher matcher;
  matcher.progress_.assign(patterns.size(), 0);
  matcher.patterns_ = std::make_shared<const std::vector<Pattern>>(std::move(patterns));
  return matcher;
}

bool StopMatcher::Step(char byte) {
  for (size_t i = 0; i < progress_.size(); ++i) {
    const Pattern& pattern = (*patterns_)[i];
    size_t& length = progress_[i];
    while (length > 0 && pattern.text[length] != byte) length = pattern.border[length];
    if (pattern.text[length] == byte) ++length;
    if (length < pattern.text.size()) continue;
    const bool longer = match_ < 0 || length > (*patterns_)[match_].text.size();
    if (longer) match_ = static_cast<int>(i);
  }
  return match_ >= 0;
}

size_t StopMatcher::LongestBeginning() const {
  return progress_.empty() ? 0 : *std::max_element(progress_.begin(), progress_.end());
}

StopMatcher::Output StopMatcher::Push(std::string_view text) {
  if (stopped()) return {"", true};
  kept_.reserve(kept_.size() + text.size());
  for (const char byte : text) {
    kept_.push_back(byte);
    if (!Step(byte)) continue;
    kept_.resize(kept_.size() - matched_string().size());
    return {std::exchange(kept_, {}), true};
  }
  const size_t shown = kept_.size() - LongestBeginning();
  Output output{kept_.substr(0, shown), false};
  kept_.erase(0, shown);
  return output;
}

std::string StopMatcher::Flush() { return std::exchange(kept_, {}); }

const std::string& StopMatcher::matched_string() const {
  TALON_DCHECK(stopped());
  return (*patterns_)[match_].text;
}

}  // namespace talon
