#include "base/valid_values.h"

#include <cmath>

namespace talon {

std::string Range::ToString() const {
  std::string text;
  if (above_low) {
    text = fmt::format("above {}", low);
    if (std::isfinite(high)) text += fmt::format(", at most {}", high);
  } else if (!std::isfinite(high)) {
    text = std::isfinite(low) ? fmt::format("{} or more", low) : "a number";
  } else {
    text =
        std::isfinite(low) ? fmt::format("{} to {}", low, high) : fmt::format("at most {}", high);
  }
  return also ? fmt::format("{} or {}", *also, text) : text;
}

std::string JoinWithOr(const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 < names.size() ? ", " : " or ";
    list += names[i];
  }
  return list;
}

}  // namespace talon
