// The choice of experts on the host: which rows go to which expert, with which weight.
#ifndef TALON_COMPUTE_HOST_HOST_EXPERTS_H_
#define TALON_COMPUTE_HOST_HOST_EXPERTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/backend.h"

namespace talon {

struct ExpertChoice {
  int32_t expert = 0;
  float weight = 0;
};

// The rule's experts of one row, in descending order of their logits, ties to the lower index; a
// NaN is never preferred. `choices`: rule.per_row of them.
void ChooseExperts(std::span<const float> logits, const ExpertRule& rule,
                   std::span<ExpertChoice> choices);

// The rows of a pass by expert. Reused from pass to pass.
class ExpertRows {
 public:
  // `logits`: [rows, experts] in host memory.
  void Build(MatrixView logits, const ExpertRule& rule);

  // The rows that chose the expert, ascending, and its weight in each.
  std::span<const int32_t> rows(int expert) const { return Slice(rows_, expert); }
  std::span<const float> weights(int expert) const { return Slice(weights_, expert); }

 private:
  template <typename T>
  std::span<const T> Slice(const std::vector<T>& all, int expert) const {
    return std::span(all).subspan(begin_[expert], begin_[expert + 1] - begin_[expert]);
  }

  std::vector<ExpertChoice> choices_;  // [rows, per_row]
  std::vector<int32_t> begin_;         // [experts + 1]
  std::vector<int32_t> rows_;
  std::vector<float> weights_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_EXPERTS_H_
