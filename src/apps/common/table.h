// A plain table for terminals: columns as wide as their content.
#ifndef TALON_APPS_COMMON_TABLE_H_
#define TALON_APPS_COMMON_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace talon {

inline constexpr size_t kTerminalColumns = 80;

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // The first column left-aligned, the others right-aligned (or all left); an empty header is left
  // out.
  std::string ToString(bool all_left = false) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string FormatBytes(double bytes);  // "27.8 MB"

}  // namespace talon

#endif  // TALON_APPS_COMMON_TABLE_H_
