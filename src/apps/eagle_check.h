// Compares an EAGLE or EAGLE-3 head on its target with a golden file.
//
// The file is a safetensors file with
//   input_ids       i32 [n]           the prompt
//   sampled         i32 [1]           the token after it
//   capture_layers  i32 [A]           the target's layers whose input is captured
//   features        f32 [n, A * Ht]   what is captured; EAGLE: the last hidden states
//   prefill.logits  f32 [n, Vd]       of every draft row, that is features t with token t + 1
//   prefill.hidden  f32 [n, H]        the layer's output of every draft row
//   tree.topk_steps_total  i32 [3]    k, levels, kept nodes without the root
//   tree.tokens, tree.parents  i32 [kept]   target ids; -1: child of the sampled token
//   tree.scores     f32 [kept]        sums of log-probabilities
// The inputs are required, every other tensor is a case if it is there.
#ifndef TALON_APPS_EAGLE_CHECK_H_
#define TALON_APPS_EAGLE_CHECK_H_

#include <vector>

#include "apps/head_check.h"

namespace talon {

// One entry per case. An error only where the files cannot be used together at all. Changes the
// target's captured layers.
Result<std::vector<GoldenCase>> CheckEagleGolden(Decoder* target, Backend* backend,
                                                 const HeadCheckOptions& options);

}  // namespace talon

#endif  // TALON_APPS_EAGLE_CHECK_H_
