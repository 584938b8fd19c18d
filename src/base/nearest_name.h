// Suggestions for misspelt names.
#ifndef TALON_BASE_NEAREST_NAME_H_
#define TALON_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace talon {

// The shortest candidate that begins with `name`, else the one with the smallest edit distance, of
// several the one that begins most alike. "" if none is near.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace talon

#endif  // TALON_BASE_NEAREST_NAME_H_
