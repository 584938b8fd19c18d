// Random EAGLE-1 and block heads on disk, for tests.
#ifndef TALON_MODEL_HEADS_TEST_HEADS_H_
#define TALON_MODEL_HEADS_TEST_HEADS_H_

#include <cstdint>
#include <string>

#include "base/json_fwd.h"
#include "model/config.h"
#include "model/heads/draft_kind.h"

namespace talon {

// The config.json of a head for a target: EAGLE, or two layers that draft 6 tokens from the inputs
// of layers 2 and n - 1.
Json TestHeadConfig(DraftKind kind, const ModelConfig& target);

// A head of that configuration in the method's own layout. REQUIRES: kEagle or a block head's kind.
void WriteTestHead(const std::string& dir, DraftKind kind, const Json& config,
                   const ModelConfig& target, uint64_t seed);
void WriteTestHead(const std::string& dir, DraftKind kind, const ModelConfig& target,
                   uint64_t seed);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_TEST_HEADS_H_
