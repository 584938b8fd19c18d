// How prompts share the rows of a step.
#ifndef TALON_ENGINE_SCHEDULE_PROMPT_SHARES_H_
#define TALON_ENGINE_SCHEDULE_PROMPT_SHARES_H_

#include <vector>

#include "engine/active_request.h"
#include "engine/step/entry.h"
#include "kv/kv_cache.h"

namespace talon {

struct PromptLimits {
  int rows = 0;    // prompt tokens in all
  int reads = 0;   // part of `rows`: their outputs are read
  int blocks = 0;  // new blocks in all
};

// At most `limits.rows` prompt tokens in all, shared evenly, so that a short prompt does not wait
// for a long one; what the short ones leave goes to the others. A prompt that finds too few blocks
// of `kv` waits for a later step.
std::vector<PromptChunk> SharePromptRows(std::vector<ActiveRequest*> prompts, PromptLimits limits,
                                         const KvCache& kv);

}  // namespace talon

#endif  // TALON_ENGINE_SCHEDULE_PROMPT_SHARES_H_
