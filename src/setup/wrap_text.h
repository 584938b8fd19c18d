// Text in lines of a limited width.
#ifndef TALON_SETUP_WRAP_TEXT_H_
#define TALON_SETUP_WRAP_TEXT_H_

#include <cstddef>
#include <string>

namespace talon {

// Breaks text at spaces so that no line is wider; a longer word stands alone.
std::string WrapText(const std::string& text, size_t width);

}  // namespace talon

#endif  // TALON_SETUP_WRAP_TEXT_H_
