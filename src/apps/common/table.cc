#include "apps/common/table.h"

#include <fmt/core.h>

#include <algorithm>

namespace talon {

std::string Table::ToString(bool all_left) const {
  std::vector<size_t> width;
  for (const auto& row : rows_) {
    width.resize(std::max(width.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    if (row.empty()) continue;
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i == 0     ? fmt::format("{:<{}}", row[i], width[i])
              : all_left ? fmt::format("  {:<{}}", row[i], width[i])
                         : fmt::format("  {:>{}}", row[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string FormatBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

}  // namespace talon
