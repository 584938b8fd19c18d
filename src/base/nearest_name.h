// Suggestions for misspelt names.
#ifndef TALON_BASE_NEAREST_NAME_H_
#define TALON_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace talon {

// The candidate with the smallest edit distance to `name`, or "" if none is near.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace talon

#endif  // TALON_BASE_NEAREST_NAME_H_
