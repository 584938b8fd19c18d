#include "setup/wrap_text.h"

#include <sstream>

namespace talon {

std::string WrapText(const std::string& text, size_t width) {
  std::istringstream words(text);
  std::string out;
  size_t used = 0;
  for (std::string word; words >> word; used += word.size()) {
    const bool breaks = used > 0 && used + 1 + word.size() > width;
    if (used > 0) out += breaks ? '\n' : ' ';
    used = breaks || used == 0 ? 0 : used + 1;
    out += word;
  }
  return out;
}

}  // namespace talon
