// Recall: codes hidden in long prompts, asked for at their end. Shows what partial verification
// overlooks.
#ifndef TALON_APPS_BENCH_LONGCONTEXT_RECALL_H_
#define TALON_APPS_BENCH_LONGCONTEXT_RECALL_H_

#include <string>
#include <vector>

#include "apps/bench/longcontext.h"
#include "apps/common/prompts.h"
#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

// Prompts that have an answer; at most `per_length` of each bucket (0 = all).
Result<std::vector<Prompt>> ReadRecallPrompts(const std::string& path, const LoadedModel& model,
                                              int per_length);

// Prompts are counted by length: the power of two that is nearest by ratio. REQUIRES: tokens >= 1
int RecallBucketOf(int tokens);

// Whether the text begins with the answer; spaces before either do not count.
bool AnswersRight(const std::string& text, const std::string& answer);

// Answers every prompt in every way that verifies partially, and under full verification with the
// same drafter (plain decoding where the variants have none). Per variant and bucket: prompts,
// right answers, and answers whose tokens differ from full verification's. A prompt is
// computed once, through the prefix cache.
Result<Json> RunRecall(LoadedModel* model, Config config, const std::vector<Variant>& variants,
                       const std::vector<Prompt>& prompts);

}  // namespace talon

#endif  // TALON_APPS_BENCH_LONGCONTEXT_RECALL_H_
