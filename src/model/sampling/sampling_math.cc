#include "model/sampling/sampling_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>

namespace talon {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
constexpr size_t kChunk = 512;       // weights computed at a time, small enough for the stack
constexpr size_t kMaximaChunk = 64;  // granularity of the bound in SelectTop

// exp(x) for x <= 0, 0 below -87.7 (where floats end) and for NaN. Without branches, so that the
// compiler vectorises loops over it; a polynomial instead of libm, so that machines agree.
inline float ExpNonPositive(float x) {
  constexpr float kLowest = -88.0f;  // n = -127, whose power of two below has the bits of 0
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  // The lower bound on the bits: below zero, larger bits are lower floats and NaN the lowest.
  const uint32_t bits = std::bit_cast<uint32_t>(x) | 0x80000000u;
  const float bounded = std::bit_cast<float>(std::min(bits, std::bit_cast<uint32_t>(kLowest)));
  const float shifted = bounded * 1.44269504f + kRoundingShift;
  const float n = shifted - kRoundingShift;
  // ln 2 in two parts, the first exact in few bits, so that r keeps its precision.
  const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRoundingShift);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

// Maps logits to weights: 1 for the highest, softmax numerators below it.
class Softmax {
 public:
  explicit Softmax(float max, float temperature = 1) : max_(max), temperature_(temperature) {}

  float max() const { return max_; }
  float Weight(float logit) const { return ExpNonPositive((logit - max_) / temperature_); }
  void Weights(std::span<const float> logits, float* __restrict weights) const {
    const float max = max_, temperature = temperature_;
    for (size_t i = 0; i < logits.size(); ++i) {
      weights[i] = ExpNonPositive((logits[i] - max) / temperature);
    }
  }

 private:
  float max_;
  float temperature_;
};

// NaN never wins. Independent lanes, so that the compiler may use vector instructions.
float MaxOf(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> best;
  best.fill(kNegativeInfinity);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      best[lane] = logits[i + lane] > best[lane] ? logits[i + lane] : best[lane];
    }
  }
  for (; i < logits.size(); ++i) best[0] = logits[i] > best[0] ? logits[i] : best[0];
  return *std::max_element(best.begin(), best.end());
}

bool Before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

bool ByToken(const Candidate& a, const Candidate& b) { return a.token < b.token; }

// A value that at least `count` logits reach: the count-th highest of the chunks' maxima.
float BoundForTop(std::span<const float> logits, size_t count) {
  if (count * kMaximaChunk > logits.size()) return kNegativeInfinity;
  std::vector<float> maxima;
  maxima.reserve(logits.size() / kMaximaChunk + 1);
  for (size_t i = 0; i < logits.size(); i += kMaximaChunk) {
    maxima.push_back(MaxOf(logits.subspan(i, std::min(kMaximaChunk, logits.size() - i))));
  }
  std::nth_element(maxima.begin(), maxima.begin() + (count - 1), maxima.end(), std::greater<>());
  return maxima[count - 1];
}

// The `count` best by Before(), in no particular order.
std::vector<Candidate> SelectTop(std::span<const float> logits, size_t count) {
  std::vector<Candidate> selected;
  if (count == 0) return selected;
  const float bound = BoundForTop(logits, count);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= bound && logits[i] > kNegativeInfinity) {
      selected.push_back({static_cast<int32_t>(i), logits[i]});
    }
  }
  if (selected.size() > count) {
    std::nth_element(selected.begin(), selected.begin() + count, selected.end(), Before);
    selected.resize(count);
  }
  return selected;
}

// Running sum of all weights in ascending id. ends[c] = the sum after chunk c.
std::vector<double> ChunkEnds(std::span<const float> logits, const Softmax& softmax) {
  std::array<float, kChunk> weights;
  std::vector<double> ends;
  ends.reserve(logits.size() / kChunk + 1);
  double sum = 0;
  for (size_t i = 0; i < logits.size(); i += kChunk) {
    const size_t size = std::min(kChunk, logits.size() - i);
    softmax.Weights(logits.subspan(i, size), weights.data());
    for (size_t j = 0; j < size; ++j) sum += weights[j];
    ends.push_back(sum);
  }
  return ends;
}

// Index of the first weight whose running sum, begun at `sum`, exceeds `target`; if none does (the
// last rounding), of the last weight that is not 0; -1 if all are 0.
int32_t FirstAbove(std::span<const float> weights, double sum, double target) {
  int32_t last = -1;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    last = static_cast<int32_t>(i);
    sum += weights[i];
    if (sum > target) break;
  }
  return last;
}

// The draw over the whole row. Only the chunk that holds the answer is looked at twice.
int32_t DrawFromAll(std::span<const float> logits, const Softmax& softmax, double u) {
  const std::vector<double> ends = ChunkEnds(logits, softmax);
  const double target = u * ends.back();
  // Not past the chunk where the sum reaches its final value: later chunks weigh nothing.
  const auto above = std::upper_bound(ends.begin(), ends.end(), target);
  const auto last = std::lower_bound(ends.begin(), ends.end(), ends.back());
  const size_t chunk = std::min(above, last) - ends.begin();

  std::array<float, kChunk> weights;
  const size_t begin = chunk * kChunk;
  const size_t size = std::min(kChunk, logits.size() - begin);
  softmax.Weights(logits.subspan(begin, size), weights.data());
  const double before = chunk == 0 ? 0.0 : ends[chunk - 1];
  return static_cast<int32_t>(begin) + FirstAbove({weights.data(), size}, before, target);
}

// Calls visit(token, logit, weight) for all tokens in ascending id.
template <typename Visit>
void ForEachWeight(std::span<const float> logits, const Softmax& softmax, Visit visit) {
  std::array<float, kChunk> weights;
  for (size_t i = 0; i < logits.size(); i += kChunk) {
    const size_t size = std::min(kChunk, logits.size() - i);
    softmax.Weights(logits.subspan(i, size), weights.data());
    for (size_t j = 0; j < size; ++j) {
      visit(static_cast<int32_t>(i + j), logits[i + j], weights[j]);
    }
  }
}

// Cuts candidates after the one that, highest first, brings the sum (begun at `sum`) to `target`.
void CutWhereSumReaches(double sum, double target, const Softmax& softmax,
                        std::vector<Candidate>* candidates) {
  std::sort(candidates->begin(), candidates->end(), Before);
  for (size_t i = 0; i < candidates->size(); ++i) {
    sum += softmax.Weight((*candidates)[i].logit);
    if (sum >= target) return candidates->resize(i + 1);
  }
}

// Weights in [0, 1] by their upper 16 bits: buckets in weight order, about 128 per factor of two.
constexpr size_t kBuckets = (std::bit_cast<uint32_t>(1.0f) >> 16) + 1;
size_t BucketOf(float weight) { return std::bit_cast<uint32_t>(weight) >> 16; }

// Finds the bucket where the descending sum reaches top_p of the total, so that only the tokens of
// that one bucket need sorting, however flat the distribution is.
std::vector<Candidate> KeepTopP(std::span<const float> logits, const Softmax& softmax,
                                float top_p) {
  std::vector<double> sums(kBuckets, 0.0);
  ForEachWeight(logits, softmax,
                [&](int32_t, float, float weight) { sums[BucketOf(weight)] += weight; });
  const double target = top_p * std::accumulate(sums.begin(), sums.end(), 0.0);
  size_t edge = kBuckets - 1;
  double above = 0;
  for (; edge > 0 && above + sums[edge] < target; --edge) above += sums[edge];

  std::vector<Candidate> kept, at_edge;
  ForEachWeight(logits, softmax, [&](int32_t token, float logit, float weight) {
    if (weight > 0 && BucketOf(weight) >= edge) {
      (BucketOf(weight) > edge ? kept : at_edge).push_back({token, logit});
    }
  });
  CutWhereSumReaches(above, target, softmax, &at_edge);
  std::sort(at_edge.begin(), at_edge.end(), ByToken);
  std::vector<Candidate> merged(kept.size() + at_edge.size());
  std::merge(kept.begin(), kept.end(), at_edge.begin(), at_edge.end(), merged.begin(), ByToken);
  return merged;
}

std::vector<Candidate> KeepMinP(std::span<const float> logits, const Softmax& softmax,
                                float min_p) {
  std::vector<Candidate> kept;
  ForEachWeight(logits, softmax, [&](int32_t token, float logit, float weight) {
    if (weight >= min_p) kept.push_back({token, logit});
  });
  return kept;
}

std::vector<Candidate> KeepTopK(std::span<const float> logits, const Softmax& softmax,
                                const Truncation& truncation) {
  std::vector<Candidate> kept = SelectTop(logits, truncation.top_k);
  if (truncation.top_p < 1) {
    double total = 0;
    for (const Candidate& candidate : kept) total += softmax.Weight(candidate.logit);
    CutWhereSumReaches(0.0, truncation.top_p * total, softmax, &kept);
  }
  std::sort(kept.begin(), kept.end(), ByToken);
  return kept;
}

bool TopKIsOn(const Truncation& truncation, size_t vocab) {
  return truncation.top_k > 0 && static_cast<size_t>(truncation.top_k) < vocab;
}

bool KeepsAll(const Truncation& truncation, size_t vocab) {
  return !TopKIsOn(truncation, vocab) && truncation.top_p >= 1 && truncation.min_p <= 0;
}

// The tokens that survive top-k, top-p and min-p, in ascending id. The highest weight is 1 at every
// stage, so min-p is a plain bound on weights.
std::vector<Candidate> KeptTokens(std::span<const float> logits, const Softmax& softmax,
                                  const Truncation& truncation) {
  std::vector<Candidate> kept;
  if (TopKIsOn(truncation, logits.size())) {
    kept = KeepTopK(logits, softmax, truncation);
  } else if (truncation.top_p < 1) {
    kept = KeepTopP(logits, softmax, truncation.top_p);
  } else {
    return KeepMinP(logits, softmax, truncation.min_p);
  }
  std::erase_if(kept, [&](const Candidate& candidate) {
    return softmax.Weight(candidate.logit) < truncation.min_p;
  });
  return kept;
}

std::vector<float> WeightsOf(const std::vector<Candidate>& candidates, const Softmax& softmax) {
  std::vector<float> weights;
  weights.reserve(candidates.size());
  for (const Candidate& candidate : candidates) weights.push_back(softmax.Weight(candidate.logit));
  return weights;
}

double RunningSum(std::span<const float> weights) {
  double sum = 0;
  for (const float weight : weights) sum += weight;
  return sum;
}

}  // namespace

int32_t ArgMax(std::span<const float> logits) {
  const float max = MaxOf(logits);
  if (max == kNegativeInfinity) return -1;
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

std::vector<Candidate> TopCandidates(std::span<const float> logits, int count) {
  std::vector<Candidate> top = SelectTop(logits, std::max(count, 0));
  std::sort(top.begin(), top.end(), Before);
  return top;
}

double LogSumExp(std::span<const float> logits) {
  const Softmax softmax(MaxOf(logits));
  return softmax.max() + std::log(ChunkEnds(logits, softmax).back());
}

int32_t DrawToken(std::span<const float> logits, const Truncation& truncation, double u) {
  const Softmax softmax(MaxOf(logits), truncation.temperature);
  if (KeepsAll(truncation, logits.size())) return DrawFromAll(logits, softmax, u);
  const std::vector<Candidate> kept = KeptTokens(logits, softmax, truncation);
  return kept[DrawFromWeights(WeightsOf(kept, softmax), u)].token;
}

void FinalProbabilities(std::span<const float> logits, const Truncation& truncation,
                        std::vector<float>* probs) {
  const Softmax softmax(MaxOf(logits), truncation.temperature);
  probs->assign(logits.size(), 0.0f);
  if (KeepsAll(truncation, logits.size())) {
    softmax.Weights(logits, probs->data());
    const double total = RunningSum(*probs);
    for (float& prob : *probs) prob = static_cast<float>(prob / total);
    return;
  }
  const std::vector<Candidate> kept = KeptTokens(logits, softmax, truncation);
  const std::vector<float> weights = WeightsOf(kept, softmax);
  const double total = RunningSum(weights);
  for (size_t i = 0; i < kept.size(); ++i) {
    (*probs)[kept[i].token] = static_cast<float>(weights[i] / total);
  }
}

int32_t DrawFromWeights(std::span<const float> weights, double u) {
  return FirstAbove(weights, 0.0, u * RunningSum(weights));
}

}  // namespace talon
