#include "spec/specpv/shadow.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/random.h"

namespace talon {
namespace {

size_t ArgmaxOf(std::span<const float> values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best] || std::isnan(values[best])) best = i;
  }
  return best;
}

// log(sum(exp(logits)))
double LogTotal(std::span<const float> logits) {
  const double largest = logits[ArgmaxOf(logits)];
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - largest);
  return largest + std::log(total);
}

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const double p_total = LogTotal(p_logits);
  const double q_total = LogTotal(q_logits);
  double sum = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_total;
    const double p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - (q_logits[i] - q_total));
  }
  return std::max(0.0, sum);  // rounding may leave it slightly below
}

double Cosine(std::span<const float> a, std::span<const float> b) {
  double product = 0, square_a = 0, square_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    square_a += static_cast<double>(a[i]) * a[i];
    square_b += static_cast<double>(b[i]) * b[i];
  }
  const double norm = std::sqrt(square_a) * std::sqrt(square_b);
  return norm == 0 ? 0 : product / norm;
}

}  // namespace

bool DrawShadow(const SpecPvConfig& config, uint64_t seed, int64_t position) {
  if (config.shadow_rate <= 0) return false;
  const RandomKey key{
      .seed = seed, .position = static_cast<uint64_t>(position), .stream = RandomStream::kShadow};
  return UniformDraw(key) < config.shadow_rate;
}

RowDifference CompareRows(std::span<const float> full_logits, std::span<const float> partial_logits,
                          std::span<const float> full_hidden,
                          std::span<const float> partial_hidden) {
  TALON_CHECK(!full_logits.empty() && full_logits.size() == partial_logits.size());
  TALON_CHECK(full_hidden.size() == partial_hidden.size());
  return {.argmax_differs = ArgmaxOf(full_logits) != ArgmaxOf(partial_logits),
          .kl_nats = KlDivergence(full_logits, partial_logits),
          .hidden_cosine = Cosine(full_hidden, partial_hidden)};
}

void RecordShadow(const RowDifference& difference, int distance, AgreementByDistance* agreement,
                  Metrics* metrics) {
  agreement->Record(distance, !difference.argmax_differs);
  const int first = AgreementByDistance::FirstDistance(AgreementByDistance::BucketOf(distance));
  const std::string label = std::to_string(first);
  metrics->Observe(Histogram::kSpecPvKlNats, difference.kl_nats, label);
  metrics->Observe(Histogram::kSpecPvHiddenCosine, difference.hidden_cosine, label);
}

}  // namespace talon
