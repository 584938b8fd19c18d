// How client and worker of a session make sure that they mean the same tokens.
#ifndef TALON_ENGINE_PREFIX_HASH_H_
#define TALON_ENGINE_PREFIX_HASH_H_

#include <cstdint>
#include <span>

namespace talon {

// FNV-1a, 64 bits, over the little-endian bytes of the token ids.
inline uint64_t PrefixHash(std::span<const int32_t> tokens) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int32_t token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash ^= (static_cast<uint32_t>(token) >> shift) & 0xff;
      hash *= 0x100000001b3;
    }
  }
  return hash;
}

}  // namespace talon

#endif  // TALON_ENGINE_PREFIX_HASH_H_
