#include "compute/host/host_experts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace talon {
namespace {

float SumOfExponentials(std::span<const float> logits, float largest) {
  float sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return sum;
}

}  // namespace

void ChooseExperts(std::span<const float> logits, const ExpertRule& rule,
                   std::span<ExpertChoice> choices) {
  const auto before = [](const ExpertChoice& a, const ExpertChoice& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.expert < b.expert;
  };
  size_t kept = 0;  // choices[0, kept) are the best so far, in order
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
    const ExpertChoice candidate{static_cast<int32_t>(i), logit};
    if (kept == choices.size() && !before(candidate, choices[kept - 1])) continue;
    size_t place = kept < choices.size() ? kept++ : kept - 1;
    for (; place > 0 && before(candidate, choices[place - 1]); --place) {
      choices[place] = choices[place - 1];
    }
    choices[place] = candidate;
  }
  // `weight` holds the logits so far.
  const float largest = choices[0].weight;
  float sum = 0;
  for (const ExpertChoice& choice : choices) sum += std::exp(choice.weight - largest);
  if (!rule.normalised) sum = SumOfExponentials(logits, largest);
  for (ExpertChoice& choice : choices) choice.weight = std::exp(choice.weight - largest) / sum;
}

void ExpertRows::Build(MatrixView logits, const ExpertRule& rule) {
  const auto per_row = static_cast<size_t>(rule.per_row);
  const auto experts = static_cast<size_t>(logits.cols);
  TALON_CHECK(per_row >= 1 && per_row <= experts, "{} of {} experts", per_row, experts);
  choices_.resize(logits.rows * per_row);
  begin_.assign(experts + 1, 0);
  for (int r = 0; r < logits.rows; ++r) {
    const std::span row(logits.data + r * logits.stride, experts);
    const std::span choices = std::span(choices_).subspan(r * per_row, per_row);
    ChooseExperts(row, rule, choices);
    for (const ExpertChoice& choice : choices) ++begin_[choice.expert + 1];
  }
  for (size_t e = 0; e < experts; ++e) begin_[e + 1] += begin_[e];
  rows_.resize(choices_.size());
  weights_.resize(choices_.size());
  std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
  for (size_t i = 0; i < choices_.size(); ++i) {
    const int32_t place = next[choices_[i].expert]++;
    rows_[place] = static_cast<int32_t>(i / per_row);
    weights_[place] = choices_[i].weight;
  }
}

}  // namespace talon
