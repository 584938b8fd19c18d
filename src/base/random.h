// Counter-based random numbers: Philox4x32-10. A draw is a pure function of (seed, position,
// stream, choice, draw), so the same request gives the same text however its tokens were computed.
#ifndef TALON_BASE_RANDOM_H_
#define TALON_BASE_RANDOM_H_

#include <array>
#include <cstdint>

namespace talon {

enum class RandomStream : uint32_t {
  kTarget = 0,
  kDrafter = 1,
  kAcceptCoin = 2,
  kResidual = 3,
  kShadow = 4,
};

using PhiloxWords = std::array<uint32_t, 4>;

PhiloxWords Philox4x32(PhiloxWords counter, uint32_t key0, uint32_t key1);

struct RandomKey {
  uint64_t seed = 0;
  uint64_t position = 0;  // absolute index of the token being drawn
  RandomStream stream = RandomStream::kTarget;
  uint32_t choice = 0;  // completion index for n > 1
  uint32_t draw = 0;
};

// Uniform in [0, 1), 53 bits.
double UniformDraw(const RandomKey& key);

// A seed from the operating system, for requests without one.
uint64_t RandomSeed();

}  // namespace talon

#endif  // TALON_BASE_RANDOM_H_
