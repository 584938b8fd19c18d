// The arithmetic of a draw on one row of processed logits: softmax, top-k, top-p, min-p, the draw.
//
// Pure functions, safe from any thread. Results are the same bits on every machine: weights are
// fp32 exponentials by a fixed polynomial, sums are running sums in double in a stated order. A
// logit of -inf or NaN is a token that can never be drawn. Every function is linear in the
// vocabulary: only the few tokens that decide a cut are sorted.
#ifndef TALON_MODEL_SAMPLING_SAMPLING_MATH_H_
#define TALON_MODEL_SAMPLING_SAMPLING_MATH_H_

#include <cstdint>
#include <span>
#include <vector>

namespace talon {

struct Candidate {
  int32_t token = 0;
  float logit = 0;
};

struct Truncation {
  float temperature = 1;  // > 0
  int top_k = 0;          // 0 = off
  float top_p = 1;
  float min_p = 0;
};

// The token with the highest logit, ties to the lowest id; -1 if there is none above -inf.
int32_t ArgMax(std::span<const float> logits);

// The `count` highest logits above -inf (fewer if there are fewer), highest first, ties to the
// lower id.
std::vector<Candidate> TopCandidates(std::span<const float> logits, int count);

// log(sum(exp(logits))), fp32 exponentials summed in double. REQUIRES: a highest logit that is
// finite.
double LogSumExp(std::span<const float> logits);

// Draws with `u` in [0, 1): over the kept tokens in ascending id, the first whose running sum of
// weights exceeds u * total. REQUIRES: a highest logit that is finite.
int32_t DrawToken(std::span<const float> logits, const Truncation& truncation, double u);

// The distribution DrawToken draws from: probs[i] >= 0, their sum is 1, cut tokens are 0.
// REQUIRES: a highest logit that is finite.
void FinalProbabilities(std::span<const float> logits, const Truncation& truncation,
                        std::vector<float>* probs);

// The same draw from explicit weights (a residual, say), which need not sum to 1; -1 if all are 0.
int32_t DrawFromWeights(std::span<const float> weights, double u);

}  // namespace talon

#endif  // TALON_MODEL_SAMPLING_SAMPLING_MATH_H_
