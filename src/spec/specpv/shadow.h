// Shadow verification: some partial steps are also run in full, without effect on the text, to see
// how far the two are apart.
#ifndef TALON_SPEC_SPECPV_SHADOW_H_
#define TALON_SPEC_SPECPV_SHADOW_H_

#include <cstdint>
#include <span>

#include "observe/metrics.h"
#include "spec/specpv/config.h"
#include "spec/specpv/governor.h"

namespace talon {

// Whether the partial step that starts at `position` is also verified in full. A pure function, so
// a request repeats with its seed.
bool DrawShadow(const SpecPvConfig& config, uint64_t seed, int64_t position);

// One row, as a full and as a partial pass compute it.
struct RowDifference {
  bool argmax_differs = false;
  double kl_nats = 0;        // KL(full || partial); infinite if partial forbids what full allows
  double hidden_cosine = 1;  // between the last hidden states; 0 if one of them is zero
};

// Logits are those after all processors (-inf = forbidden); argmax ties go to the lower id.
// REQUIRES: equal lengths, at least one logit that is not -inf or NaN in each.
RowDifference CompareRows(std::span<const float> full_logits, std::span<const float> partial_logits,
                          std::span<const float> full_hidden,
                          std::span<const float> partial_hidden);

// Counts a row at its distance since the last full pass (governor.h).
void RecordShadow(const RowDifference& difference, int distance, AgreementByDistance* agreement,
                  Metrics* metrics);

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_SHADOW_H_
