// What a block head is (DFlash, JetSpec, DSpark): the sizes and options of its config.json, checked
// against the target.
//
// The head has a few layers of its own. It drafts a whole block in one pass: the row of the anchor,
// the last token of the sequence, then rows of a mask token, at the positions that follow. Rows see
// the K and V that were made of the target's features for every earlier position, and each other.
//
// Options stand at the top level or in `dflash_config`, `jetspec_config` or `dspark_config`, in
// speculators files the layers' keys in `transformer_layer_config`.
#ifndef TALON_MODEL_HEADS_BLOCK_CONFIG_H_
#define TALON_MODEL_HEADS_BLOCK_CONFIG_H_

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "model/config.h"
#include "model/heads/draft_kind.h"

namespace talon {

struct BlockConfig {
  ModelConfig layers;  // the draft's layers; its vocabulary is the target's
  int target_hidden_size = 0;
  int draft_vocab_size = 0;  // Vd, at most the target's
  int block_size = 0;        // B, rows of a block, the anchor's included
  int mask_token = 0;        // token of the rows after the anchor
  bool causal = false;       // a row sees the rows before it, else all rows of the block
  bool from_anchor = false;  // a row drafts the token after its position, else the one at it
  bool markov = false;       // the logits of a draft depend on the token before it
  // The target's layers whose *input* is captured, whatever convention the file uses.
  std::vector<int> capture_layers;

  int first_draft_row() const { return from_anchor ? 0 : 1; }
  int num_drafts() const { return block_size - first_draft_row(); }
  int features_size() const {  // A * Ht
    return static_cast<int>(capture_layers.size()) * target_hidden_size;
  }
};

// `what` names the source in messages, usually the file's path. `capture_override` (layers whose
// input is captured) replaces the file's list unless it is empty. REQUIRES: a block head's kind.
Result<BlockConfig> ParseBlockConfig(const Json& json, const std::string& what, DraftKind kind,
                                     const ModelConfig& target,
                                     const std::vector<int>& capture_override);

// A head as they are published for such a target: five layers, blocks of `block_size` rows.
Result<BlockConfig> UsualBlockConfig(DraftKind kind, int block_size, const ModelConfig& target,
                                     const std::vector<int>& capture_override);

// config.json of a head's directory.
Result<BlockConfig> LoadBlockConfig(const std::string& dir, const ModelConfig& target,
                                    const std::vector<int>& capture_override);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_BLOCK_CONFIG_H_
