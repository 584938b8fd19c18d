// Where a draft tree that grew on the device goes in the pass that verifies it.
#ifndef TALON_COMPUTE_TREES_TREE_PLACE_H_
#define TALON_COMPUTE_TREES_TREE_PLACE_H_

namespace talon {

// A grown tree as rows of a pass: the root, then its best candidates.
struct TreePlace {
  int tree = 0;         // index into the trees that grew
  int levels = 0;       // drafts are at most this deep
  int root_row = 0;     // row of the pass, already loaded; the drafts' rows follow it
  int nodes = 0;        // number of rows, the root's included
  int above = 0;        // nodes of the sequence above the root, all of them its ancestors
  int position = 0;     // the root's
  float min_score = 0;  // drafts of a lower score are left out
};

}  // namespace talon

#endif  // TALON_COMPUTE_TREES_TREE_PLACE_H_
