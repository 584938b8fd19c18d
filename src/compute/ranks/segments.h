// The fixed order in which products that several ranks share are summed: the inputs are cut into
// kSegments segments, whatever the number of ranks, and the segments' sums are added pairwise, in
// float32: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). A rank owns neighbouring segments, a whole
// subtree, so it sends one matrix and 1, 2, 4 and 8 ranks give the same bits.
//
// A segment may be empty; it is left out of the sums.
#ifndef TALON_COMPUTE_RANKS_SEGMENTS_H_
#define TALON_COMPUTE_RANKS_SEGMENTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/math.h"

namespace talon {

constexpr int kSegments = 8;

// A run of neighbouring indices.
struct IndexRange {
  int first = 0;
  int last = 0;  // not included
  int count() const { return last - first; }
  bool operator==(const IndexRange&) const = default;
};

// [kSegments + 1]: where the segments of `count` inputs begin and end. Only multiples of `unit`
// separate inputs. `parts`, 1, 2, 4 or 8: how many are not empty, for no more ranks than that.
inline std::vector<int> SegmentBounds(int count, int unit, int parts = kSegments) {
  const int64_t units = CeilDiv(int64_t{count}, unit);
  std::vector<int> bounds;
  for (int s = 0; s <= kSegments; ++s) {
    const int part = CeilDiv(s * parts, kSegments);
    bounds.push_back(static_cast<int>(std::min<int64_t>(units * part / parts * unit, count)));
  }
  return bounds;
}

// Where the inputs of each of `size` ranks begin and end: [size + 1].
inline std::vector<int> RankBounds(const std::vector<int>& bounds, int size) {
  std::vector<int> result;
  for (int rank = 0; rank <= size; ++rank) result.push_back(bounds[kSegments / size * rank]);
  return result;
}

// `count` of anything, spread over `size` ranks as evenly as possible: [size + 1].
inline std::vector<int> EvenBounds(int count, int size) {
  std::vector<int> result;
  for (int rank = 0; rank <= size; ++rank) {
    result.push_back(static_cast<int>(int64_t{count} * rank / size));
  }
  return result;
}

// The segments of rank `rank` of `size`. REQUIRES: size divides kSegments.
inline IndexRange SegmentsOf(int rank, int size) {
  return {kSegments / size * rank, kSegments / size * (rank + 1)};
}

// The bounds of a rank's own segments, counted from the first of its inputs.
inline std::vector<int> OwnBounds(const std::vector<int>& bounds, int rank, int size) {
  const IndexRange own = SegmentsOf(rank, size);
  std::vector<int> result;
  for (int s = own.first; s <= own.last; ++s) result.push_back(bounds[s] - bounds[own.first]);
  return result;
}

// The inputs of a rank's own segments.
inline IndexRange InputsOf(const std::vector<int>& bounds, int rank, int size) {
  const IndexRange own = SegmentsOf(rank, size);
  return {bounds[own.first], bounds[own.last]};
}

}  // namespace talon

#endif  // TALON_COMPUTE_RANKS_SEGMENTS_H_
