// Reasoning that a model writes before its answer, between <think> and </think>.
#ifndef TALON_TEXT_ANSWERS_THINKING_H_
#define TALON_TEXT_ANSWERS_THINKING_H_

#include <string_view>

namespace talon {

inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";

enum class Thinking {
  kNever,
  kMay,    // if the answer begins with <think>
  kBegun,  // the prompt ends with <think>
};

}  // namespace talon

#endif  // TALON_TEXT_ANSWERS_THINKING_H_
