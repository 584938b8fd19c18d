#include "base/random.h"

#include <random>

namespace talon {

PhiloxWords Philox4x32(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  constexpr uint64_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kM0 * counter[0];
    const uint64_t p1 = kM1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

double UniformDraw(const RandomKey& key) {
  const PhiloxWords counter = {static_cast<uint32_t>(key.position),
                               static_cast<uint32_t>(key.position >> 32),
                               static_cast<uint32_t>(key.stream) | key.choice << 8, key.draw};
  const PhiloxWords words =
      Philox4x32(counter, static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32));
  const uint64_t wide = static_cast<uint64_t>(words[0]) << 32 | words[1];
  return static_cast<double>(wide >> 11) * 0x1.0p-53;
}

uint64_t RandomSeed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace talon
