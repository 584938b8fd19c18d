// Reads what requests want of their prompts from the pass that computes them: log-probs of its
// tokens, or hidden states for a vector.
#ifndef TALON_ENGINE_STEP_PROMPT_OUTPUT_READER_H_
#define TALON_ENGINE_STEP_PROMPT_OUTPUT_READER_H_

#include <vector>

#include "engine/active_request.h"
#include "engine/step/entry.h"
#include "engine/step/options.h"
#include "engine/step/plan.h"
#include "model/decoder.h"

namespace talon {

class PromptOutputReader {
 public:
  explicit PromptOutputReader(const StepParts& parts) : parts_(parts) {}

  // After the pass, before its prompts are committed.
  void Read(const StepBatch& batch, const PlannedPass& pass, const ForwardOutput& output);

 private:
  // The row of the prompt's token at `position`: it scores the token after it.
  void ReadRow(const MatrixView& logits, const MatrixView& hidden, int position,
               ActiveRequest* run);
  const std::vector<float>& Fetch(const MatrixView& row);

  StepParts parts_;
  std::vector<float> host_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_PROMPT_OUTPUT_READER_H_
