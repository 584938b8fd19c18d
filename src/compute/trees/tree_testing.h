// Passes whose rows are draft trees that a device knows alone: made, and read back.
#ifndef TALON_COMPUTE_TREES_TREE_TESTING_H_
#define TALON_COMPUTE_TREES_TREE_TESTING_H_

#include "compute/backend.h"
#include "compute/kv_view.h"
#include "compute/pass_plan.h"

namespace talon::testing {

inline constexpr int kTreeVocabulary = 96;
inline constexpr KvShape kTreeShape{.num_layers = 1,
                                    .kv_heads = 1,
                                    .head_dim = 64,
                                    .dtype = DType::kBF16,
                                    .num_blocks = 1,
                                    .staging_rows = 256};

// A pass of `trees` sequences with `rows` rows each, all unknown, below `above` nodes.
PassPlan OutlinePlan(int trees, int rows, int above);

// The pass has the rows of the plan: tokens, positions and masks, as its ops see them.
void ExpectSameRows(Backend& backend, const Pass& pass, const PassPlan& plan, int rows_per_tree);

}  // namespace talon::testing

#endif  // TALON_COMPUTE_TREES_TREE_TESTING_H_
