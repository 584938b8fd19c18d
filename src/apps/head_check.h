// What the checks of heads have in common: the target's features, and the tree that is drafted.
#ifndef TALON_APPS_HEAD_CHECK_H_
#define TALON_APPS_HEAD_CHECK_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/decoder.h"
#include "model/files/golden_file.h"
#include "model/scratch.h"
#include "model/single_sequence.h"
#include "spec/drafter.h"

namespace talon {

inline constexpr int kMaxNodes = 1024;  // nodes of a golden tree

struct HeadCheckOptions {
  std::string head;         // directory
  std::string golden;       // file
  double tolerance = 2e-4;  // absolute, of logits, hidden states and each level of a score
  DType kv_dtype = DType::kF32;
  WeightFormat weights = WeightFormat::kF32;
  std::vector<int> capture_layers;  // replaces the head's list unless empty
};

// input_ids, and the one token of the tensor `after` that follows them.
Result<std::vector<int32_t>> ReadHeadTokens(const GoldenFile& file, const char* after);

// The target's rows of a prompt, with the features of these layers. They stay captured.
Result<SingleSequence::Rows> RunTarget(Decoder* target, Backend* backend,
                                       std::span<const int32_t> prompt,
                                       const std::vector<int>& capture_layers, DType kv_dtype);

// Rows of `cols` floats in device memory.
Result<Scratch> UploadRows(Backend* backend, std::span<const float> values, int cols);

// The tree of a new sequence: all tokens but the last are committed, with these features.
Result<TokenTree> DraftTree(Drafter* drafter, std::span<const int32_t> tokens, MatrixView features,
                            const DraftBudget& budget);

// Compares the tree with tree.tokens, tree.parents (-1: child of the root) and tree.scores. The
// file's nodes may stand in any order in which parents come before children of the same branch.
Status CompareTree(const GoldenFile& file, const TokenTree& tree, double tolerance,
                   std::vector<GoldenCase>* cases);

}  // namespace talon

#endif  // TALON_APPS_HEAD_CHECK_H_
