// talon.TokenTree.
#ifndef TALON_PYTHON_TREE_H_
#define TALON_PYTHON_TREE_H_

#include <pybind11/pybind11.h>

#include "base/status.h"
#include "spec/token_tree.h"

namespace talon {

// Whether node 0 is the one root and every other node has an earlier parent: what functions over
// trees require. A tree that a user has made from arrays may be anything.
Status CheckParents(const TokenTree& tree);

void BindTree(pybind11::module_* module);

}  // namespace talon

#endif  // TALON_PYTHON_TREE_H_
