// Stop strings over text that comes in pieces. Stop strings cut text, not tokens.
#ifndef TALON_TEXT_STOP_STRINGS_H_
#define TALON_TEXT_STOP_STRINGS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace talon {

// Passes text on, but holds back what may be the beginning of a stop string. The match is the stop
// string that is complete first, the longest if several end together; so the result does not depend
// on how the text is cut into pieces.
//
// A copy is a snapshot, to go back to after text that was not accepted; it holds at most as much
// text as the longest stop string. Not thread-safe.
class StopMatcher {
 public:
  static constexpr size_t kMaxStops = 256;
  static constexpr size_t kMaxStopBytes = 4096;

  struct Output {
    std::string text;      // what may be shown now
    bool stopped = false;  // a stop string is complete; `text` ends before it
  };

  // Matches nothing.
  StopMatcher() = default;
  // Each stop string is not empty, valid UTF-8 and at most kMaxStopBytes long.
  static Result<StopMatcher> Create(std::vector<std::string> stops);

  // Text after a match is dropped.
  Output Push(std::string_view text);
  // The text that was held back and did not become a stop string. Call it after the last text.
  std::string Flush();

  bool stopped() const { return match_ >= 0; }
  // Which stop string matched, counted from 0. REQUIRES: stopped()
  size_t matched_index() const { return static_cast<size_t>(match_); }
  const std::string& matched_string() const;

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // [length + 1], longest proper border of each prefix
  };

  // Advances every pattern by one byte. True if one is complete.
  bool Step(char byte);
  size_t LongestBeginning() const;

  // Shared by all copies, so that a snapshot does not copy the patterns; never changes.
  std::shared_ptr<const std::vector<Pattern>> patterns_;
  std::vector<size_t> progress_;  // by pattern: how much of it ends the text so far
  std::string kept_;
  int match_ = -1;
};

}  // namespace talon

#endif  // TALON_TEXT_STOP_STRINGS_H_
