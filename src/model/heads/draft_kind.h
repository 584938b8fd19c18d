// What a draft directory holds: a head of some kind or a model of its own.
#ifndef TALON_MODEL_HEADS_DRAFT_KIND_H_
#define TALON_MODEL_HEADS_DRAFT_KIND_H_

#include <string>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

enum class DraftKind {
  kModel,
  kEagle,    // EAGLE-1 and EAGLE-2
  kEagle3,   // EAGLE-3 and 3.1
  kDflash,   // block heads: every row of a block sees all of it,
  kJetspec,  // or those before it,
  kDspark    // or drafts depend on the one before (a Markov bias)
};
// "an EAGLE-3 head"
const char* DraftKindText(DraftKind kind);
bool IsBlockHead(DraftKind kind);

// By config.json and, where that does not say, by the names of the tensors. Loads no weights.
Result<DraftKind> DraftKindOf(const std::string& dir);

// The options of a block head's config.json: those of `dflash_config`, `jetspec_config` or
// `dspark_config` and of the top level, and the layers' keys, all in one object.
Json FlatBlockConfig(const Json& json);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_DRAFT_KIND_H_
