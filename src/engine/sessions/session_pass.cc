#include "engine/sessions/session_pass.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/schedule/prompt_shares.h"

namespace talon {

SessionPass::SessionPass(const Parts& parts)
    : parts_(parts),
      step_({.backend = parts.backend,
             .target = parts.target,
             .kv = parts.kv,
             .policy = &policy_,
             .metrics = parts.metrics},
            parts.options->engine.step) {}

Status SessionPass::Run() {
  int tree_rows = 0;
  const std::vector<ActiveRequest*> trees = NextTrees(&tree_rows);
  const std::vector<PromptChunk> prompts = NextPromptChunks(tree_rows);
  if (trees.empty() && prompts.empty()) return OkStatus();
  const Stopwatch watch;
  TALON_RETURN_IF_ERROR(step_.Run(trees, prompts));
  const double seconds = watch.Seconds();
  for (const auto& call : parts_.calls->running()) {
    const ActiveRequest* run = call->run.get();
    if (std::ranges::find(trees, run) != trees.end()) call->answer.model_seconds += seconds;
    for (const PromptChunk& prompt : prompts) {
      if (prompt.run != run) continue;
      call->answer.model_seconds += seconds;
      call->answer.rows += prompt.tokens;
    }
  }
  return OkStatus();
}

// The calls whose context is computed, in the order they began, as far as their trees fit.
std::vector<ActiveRequest*> SessionPass::NextTrees(int* tree_rows) const {
  std::vector<ActiveRequest*> trees;
  for (const auto& call : parts_.calls->running()) {
    ActiveRequest* run = call->run.get();
    if (call->tree_rows == 0 || run->prompt_left() > 0) continue;
    const int rows = call->tree_rows + run->sequence.tail_len;
    if (*tree_rows + rows > parts_.options->TreeRows()) continue;
    *tree_rows += rows;
    trees.push_back(run);
  }
  return trees;
}

// Every call that runs has its blocks promised, so no prompt lacks them.
std::vector<PromptChunk> SessionPass::NextPromptChunks(int tree_rows) const {
  std::vector<ActiveRequest*> prompts;
  for (const auto& call : parts_.calls->running()) {
    if (call->run->prompt_left() > 0) prompts.push_back(call->run.get());
  }
  const int rows =
      std::min(parts_.options->engine.prefill_chunk, parts_.target->max_rows() - tree_rows);
  const int blocks = parts_.kv->pool().free_blocks();
  return SharePromptRows(std::move(prompts), {.rows = rows, .blocks = blocks}, *parts_.kv);
}

}  // namespace talon
