// Compares a block head (DFlash, JetSpec, DSpark) on its target with a golden file.
//
// The file is a safetensors file with
//   input_ids       i32 [n]           the prompt
//   anchor          i32 [1]           the token after it
//   features        f32 [n, A * Ht]   what is captured
//   context.k.L, context.v.L  f32 [n, kv heads, head dim]   K and V of layer L, made of them
//   block.hidden    f32 [B, H]        after the final norm, all rows
//   block.logits    f32 [drafts, Vd]  of the rows that draft, without a Markov bias
//   tree.width_nodes  i32 [2]         candidates of a row, nodes without the root
//   tree.tokens, tree.parents  i32 [nodes]   as they were taken; -1: child of the anchor
//   tree.scores     f32 [nodes]       sums of log-probabilities
// The inputs are required, every other tensor is a case if it is there.
#ifndef TALON_APPS_BLOCK_CHECK_H_
#define TALON_APPS_BLOCK_CHECK_H_

#include <vector>

#include "apps/head_check.h"

namespace talon {

// One entry per case. An error only where the files cannot be used together at all. Changes the
// target's captured layers.
Result<std::vector<GoldenCase>> CheckBlockGolden(Decoder* target, Backend* backend,
                                                 const HeadCheckOptions& options);

}  // namespace talon

#endif  // TALON_APPS_BLOCK_CHECK_H_
