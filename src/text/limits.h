// Bounds that keep a hostile tokenizer file or text from taking memory without end. All lie far
// beyond what real ones need.
#ifndef TALON_TEXT_LIMITS_H_
#define TALON_TEXT_LIMITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace talon {

inline constexpr size_t kMaxInputBytes = size_t{1} << 26;  // length of one text to encode
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;

// What a text of `bytes` may become at any step: the longest real expansion is elevenfold.
inline constexpr size_t MaxGrownBytes(size_t bytes) {
  return std::min(32 * bytes + (size_t{1} << 16), 4 * kMaxInputBytes);
}

}  // namespace talon

#endif  // TALON_TEXT_LIMITS_H_
