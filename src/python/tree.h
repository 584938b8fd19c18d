// talon.TokenTree.
#ifndef TALON_PYTHON_TREE_H_
#define TALON_PYTHON_TREE_H_

#include <pybind11/pybind11.h>

#include "spec/token_tree.h"

namespace talon {

// Every tree that Python holds has one root, and parents before their children.
void BindTree(pybind11::module_* module);

}  // namespace talon

#endif  // TALON_PYTHON_TREE_H_
