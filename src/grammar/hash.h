// Combines hashes of the parts of a key.
#ifndef TALON_GRAMMAR_HASH_H_
#define TALON_GRAMMAR_HASH_H_

#include <cstddef>

namespace talon {

inline size_t MixHash(size_t hash, size_t value) {
  return hash ^ (value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2));
}

}  // namespace talon

#endif  // TALON_GRAMMAR_HASH_H_
