// Random logits for tests.
#ifndef TALON_MODEL_SAMPLING_TEST_LOGITS_H_
#define TALON_MODEL_SAMPLING_TEST_LOGITS_H_

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace talon {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits from a normal distribution; the same seed gives the same logits.
inline std::vector<float> RandomLogits(int size, uint32_t seed, float deviation = 3) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(generator);
  return logits;
}

}  // namespace talon

#endif  // TALON_MODEL_SAMPLING_TEST_LOGITS_H_
