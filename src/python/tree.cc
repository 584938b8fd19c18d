#include "python/tree.h"

#include <fmt/ranges.h>
#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "python/raise.h"

namespace talon {

namespace py = pybind11;

namespace {

using Tokens = std::vector<int32_t>;

// Whether node 0 is the only root and every other node has an earlier parent, as functions over
// trees require.
Status CheckParents(const TokenTree& tree) {
  if (tree.size() == 0) return InvalidArgument("tree: 0 nodes");
  if (tree.parents[0] != -1) return InvalidArgument("tree: node 0 has parent {}", tree.parents[0]);
  for (int node = 1; node < tree.size(); ++node) {
    const int parent = tree.parents[node];
    if (parent < 0 || parent >= node) {
      return InvalidArgument("tree: node {} has parent {}, must be 0 to {}", node, parent,
                             node - 1);
    }
  }
  return OkStatus();
}

TokenTree FromArrays(Tokens tokens, Tokens parents, std::vector<float> probs) {
  if (probs.empty()) probs.assign(tokens.size(), 1.0f);
  if (parents.size() != tokens.size() || probs.size() != tokens.size()) {
    throw py::value_error(fmt::format("tree: {} tokens but {} parents and {} probs", tokens.size(),
                                      parents.size(), probs.size()));
  }
  TokenTree tree;
  tree.tokens = std::move(tokens);
  tree.parents = std::move(parents);
  tree.probs = std::move(probs);
  RaiseIfError(CheckParents(tree));
  return tree;
}

// Paths share the nodes of their common beginning.
TokenTree FromPaths(int32_t root, const std::vector<Tokens>& paths) {
  TokenTree tree(root);
  for (const Tokens& path : paths) {
    int node = 0;
    for (const int32_t token : path) {
      const int child = tree.FindChild(node, token);
      node = child >= 0 ? child : tree.Add(node, token, 1.0f);
    }
  }
  return CanonicalTree(tree);
}

int AddNode(TokenTree* tree, int parent, int32_t token, float prob) {
  if (parent < 0 || parent >= tree->size()) {
    throw py::value_error(fmt::format("tree: parent {}, it has {} nodes", parent, tree->size()));
  }
  return tree->Add(parent, token, prob);
}

void Validate(const TokenTree& tree, int vocab_size, int max_nodes, int max_depth) {
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  RaiseIfError(ValidateTree(tree, {.max_nodes = max_nodes > 0 ? max_nodes : kNoLimit,
                                   .max_depth = max_depth > 0 ? max_depth : kNoLimit,
                                   .vocab_size = vocab_size > 0 ? vocab_size : kNoLimit,
                                   .max_length = kNoLimit}));
}

bool Equal(const TokenTree& a, const TokenTree& b) {
  return a.tokens == b.tokens && a.parents == b.parents && a.probs == b.probs;
}

std::string Repr(const TokenTree& tree) {
  return fmt::format("TokenTree(tokens=[{}], parents=[{}])", fmt::join(tree.tokens, ", "),
                     fmt::join(tree.parents, ", "));
}

}  // namespace

void BindTree(py::module_* module) {
  py::class_<TokenTree> tree(
      *module, "TokenTree",
      "A tree of proposed tokens. Node 0 is the root, the last token of the sequence; parents[i] "
      "is "
      "the node before node i (-1 for the root). probs are the drafter's estimates that a node is "
      "accepted if its parent is.");
  tree.def(py::init<int32_t>(), py::arg("root"))
      .def(py::init(&FromArrays), py::arg("tokens"), py::arg("parents"),
           py::arg("probs") = std::vector<float>())
      .def_static("from_paths", &FromPaths, py::arg("root"), py::arg("paths"),
                  "The tree of all paths, given as lists of tokens after the root.")
      .def("add", &AddNode, py::arg("parent"), py::arg("token"), py::arg("prob") = 1.0f,
           "Appends a child of `parent` and returns its index.")
      .def("find_child", &TokenTree::FindChild, py::arg("node"), py::arg("token"),
           "The child of `node` that carries `token`, or -1.")
      .def("validate", &Validate, py::arg("vocab_size") = 0, py::arg("max_nodes") = 0,
           py::arg("max_depth") = 0,
           "Raises ValueError that names the node if the engine would refuse the tree. 0 is no "
           "limit.")
      .def(
          "canonical", [](const TokenTree& t) { return CanonicalTree(t); },
          "The same tree in breadth-first order, repeated siblings merged.")
      .def(
          "depths", [](const TokenTree& t) { return TreeDepths(t.parents); },
          "The depth of each node, 0 for the root.")
      .def(
          "leaf_paths", [](const TokenTree& t) { return LeafPaths(t); },
          "One row per leaf: node indices from the root, padded with -1.");
  tree.def_property_readonly("tokens", [](const TokenTree& t) { return t.tokens; })
      .def_property_readonly("parents", [](const TokenTree& t) { return t.parents; })
      .def_property_readonly("probs", [](const TokenTree& t) { return t.probs; })
      .def("__len__", &TokenTree::size)
      .def("__eq__", &Equal, py::is_operator())
      .def("__repr__", &Repr)
      .def(py::pickle(
          [](const TokenTree& t) { return py::make_tuple(t.tokens, t.parents, t.probs); },
          [](const py::tuple& state) {
            return FromArrays(state[0].cast<Tokens>(), state[1].cast<Tokens>(),
                              state[2].cast<std::vector<float>>());
          }));
  tree.attr("__hash__") = py::none();
}

}  // namespace talon
