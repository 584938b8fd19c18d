#include "engine/schedule/prompt_shares.h"

#include <algorithm>

#include "base/math.h"

namespace talon {

std::vector<PromptChunk> SharePromptRows(std::vector<ActiveRequest*> prompts, PromptLimits limits,
                                         const KvCache& kv) {
  std::ranges::stable_sort(prompts, {},
                           [](const ActiveRequest* run) { return run->prompt_left(); });
  std::vector<PromptChunk> chunks;
  auto sharing = static_cast<int>(prompts.size());
  for (ActiveRequest* run : prompts) {
    int tokens = std::min(run->prompt_left(), CeilDiv(limits.rows, sharing));
    tokens -= std::max(run->reads_of(tokens) - limits.reads, 0);
    --sharing;
    const int needed = kv.BlocksNeeded(run->sequence, tokens);
    if (tokens <= 0 || needed > limits.blocks) continue;
    limits.blocks -= needed;
    limits.rows -= tokens;
    limits.reads -= run->reads_of(tokens);
    chunks.push_back({run, tokens});
  }
  return chunks;
}

}  // namespace talon
