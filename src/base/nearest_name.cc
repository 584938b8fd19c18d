#include "base/nearest_name.h"

#include <algorithm>
#include <limits>

namespace talon {
namespace {

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

size_t CommonPrefixLength(const std::string& a, const std::string& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Edits that a name of this length may have. Two edits make any short word of any other.
size_t MostEdits(const std::string& name, const std::string& candidate) {
  constexpr size_t kShortName = 3;
  if (name.size() <= kShortName) return 1;
  return std::max<size_t>(2, std::max(name.size(), candidate.size()) * 2 / 5);
}

std::string ShortestThatBeginsWith(const std::string& name,
                                   const std::vector<std::string>& candidates) {
  constexpr size_t kShortestBeginning = 3;
  std::string best;
  if (name.size() < kShortestBeginning) return best;
  for (const std::string& candidate : candidates) {
    if (!candidate.starts_with(name)) continue;
    if (best.empty() || candidate.size() < best.size()) best = candidate;
  }
  return best;
}

}  // namespace

std::string NearestName(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best = ShortestThatBeginsWith(name, candidates);
  if (!best.empty()) return best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (distance > MostEdits(name, candidate) || distance > best_distance) continue;
    const bool more_alike = CommonPrefixLength(name, candidate) > CommonPrefixLength(name, best);
    if (distance < best_distance || more_alike) best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace talon
