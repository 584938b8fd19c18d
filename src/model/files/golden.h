// Compares a decoder with a golden file: reference inputs and outputs of the same model.
//
// The file is a safetensors file whose tensors come in groups. For every prompt P:
//   P.input_ids  i32 [n]
//   P.logits     f32 [n, vocab]    of every position
//   P.greedy     i32 [m]           the m most probable tokens that follow, one after the other
//   P.hidden.L   f32 [n, hidden]   input of layer L; L = number of layers: after the final norm
// and one tree, which hangs off the last token of one of the prompts. The file does not say which
// ("long" in those of this repository), so the prompt whose logits fit best is taken:
//   tree.parents i32 [t]           -1: child of the prompt's last token
//   tree.tokens  i32 [t]
//   tree.logits  f32 [t, vocab]
#ifndef TALON_MODEL_FILES_GOLDEN_H_
#define TALON_MODEL_FILES_GOLDEN_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/decoder.h"
#include "model/files/golden_file.h"

namespace talon {

struct GoldenOptions {
  double tolerance = 2e-4;  // absolute, for logits and hidden states
  DType kv_dtype = DType::kF32;
};

// One entry per case, in the order of the file's names. An error only where the file cannot be used
// with this model at all. Changes the decoder's captured layers.
Result<std::vector<GoldenCase>> CheckGolden(Decoder* decoder, Backend* backend,
                                            const std::string& path, const GoldenOptions& options);

}  // namespace talon

#endif  // TALON_MODEL_FILES_GOLDEN_H_
