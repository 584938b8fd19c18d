#include "engine/prompt_shares.h"

#include <algorithm>

namespace talon {

std::vector<PromptChunk> SharePromptRows(std::vector<ActiveRequest*> prompts, int rows,
                                         const KvCache& kv, int free_blocks) {
  std::ranges::stable_sort(prompts, {},
                           [](const ActiveRequest* run) { return run->prompt_left(); });
  std::vector<PromptChunk> chunks;
  auto sharing = static_cast<int>(prompts.size());
  for (ActiveRequest* run : prompts) {
    const int tokens = std::min(run->prompt_left(), (rows + sharing - 1) / sharing);
    --sharing;
    const int needed = kv.BlocksNeeded(run->sequence, tokens);
    if (tokens <= 0 || needed > free_blocks) continue;
    free_blocks -= needed;
    rows -= tokens;
    chunks.push_back({run, tokens});
  }
  return chunks;
}

}  // namespace talon
