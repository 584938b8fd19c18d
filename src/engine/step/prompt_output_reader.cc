#include "engine/step/prompt_output_reader.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "model/sampling/sampler.h"
#include "observe/stage_range.h"

namespace talon {
namespace {

// Divided by its length, so that a sum of rows need not become their mean first. Empty where that
// is not possible.
std::vector<float> UnitVector(const std::vector<double>& sum) {
  const double length = std::sqrt(std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0));
  if (!std::isfinite(length) || length == 0) return {};
  std::vector<float> unit(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) unit[i] = static_cast<float>(sum[i] / length);
  return unit;
}

void EndBroken(int position, GenerateResult* result) {
  result->finish = FinishReason::kError;
  result->error = Internal("the model's outputs are not finite after {} tokens", position + 1);
}

}  // namespace

void PromptOutputReader::Read(const StepBatch& batch, const PlannedPass& pass,
                              const ForwardOutput& output) {
  const bool any = std::ranges::any_of(batch.prompts, [](const PromptChunk& prompt) {
    return prompt.run->reads_of(prompt.tokens) > 0;
  });
  if (!any) return;
  const StageRange range("ReadPrompts");
  for (size_t i = 0; i < batch.prompts.size(); ++i) {
    const PromptChunk& prompt = batch.prompts[i];
    const int reads = prompt.run->reads_of(prompt.tokens);
    const int first = prompt.run->sequence.committed_len + prompt.tokens - reads;
    for (int j = 0; j < reads; ++j) {
      const int row = pass.prompt_first_output[i] + j;
      ReadRow(output.logits.Rows(row, 1), output.hidden.Rows(row, 1), first + j, prompt.run);
    }
  }
}

void PromptOutputReader::ReadRow(const MatrixView& logits, const MatrixView& hidden, int position,
                                 ActiveRequest* run) {
  const PromptOutputs& wanted = run->request.prompt_outputs;
  const std::vector<int32_t>& tokens = run->sequence.tokens;
  GenerateResult& result = run->result;
  if (wanted.logprobs >= 0 && position + 1 < run->prompt_tokens) {
    Choice scored = ScoreToken(Fetch(logits), tokens[position + 1], wanted.logprobs);
    if (std::isnan(scored.log_prob)) EndBroken(position, &result);
    result.prompt.push_back(
        {.token = scored.token, .log_prob = scored.log_prob, .top = std::move(scored.top)});
  }
  const bool last = position + 1 == run->prompt_tokens;
  if (wanted.pooling == Pooling::kMean || (wanted.pooling == Pooling::kLast && last)) {
    const std::vector<float>& row = Fetch(hidden);
    run->pooled.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) run->pooled[i] += row[i];
    if (last) result.embedding = UnitVector(run->pooled);
    if (last && result.embedding.empty()) EndBroken(position, &result);
  }
  run->rows_read = position + 1;
}

const std::vector<float>& PromptOutputReader::Fetch(const MatrixView& row) {
  host_.resize(row.cols);
  parts_.backend->CopyOut(host_.data(), row.data, row.cols * sizeof(float));
  return host_;
}

}  // namespace talon
