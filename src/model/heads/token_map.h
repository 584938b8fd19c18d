// Drafting with a part of the vocabulary: a file names the frequent tokens, and the lm_head is cut
// to their rows.
#ifndef TALON_MODEL_HEADS_TOKEN_MAP_H_
#define TALON_MODEL_HEADS_TOKEN_MAP_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/files/tensor_layout.h"

namespace talon {

// Token ids in any order, as a JSON list or separated by white space or commas. Returns them
// ascending. `vocab_size` bounds them; repeated ids and an empty file are errors.
Result<std::vector<int32_t>> ReadTokenMap(const std::string& path, int vocab_size);

// The rows `ids` of a matrix in a directory's safetensors.
Result<std::unique_ptr<Weight>> CutRows(const std::string& dir, const TensorSpec& matrix,
                                        std::span<const int32_t> ids, Backend* backend,
                                        WeightFormat format);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_TOKEN_MAP_H_
