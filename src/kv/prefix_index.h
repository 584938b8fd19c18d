// Which full blocks hold which tokens, after which tokens: a tree of blocks.
//
// A block is known by the block before it and its own tokens, so a chain of finds from the root
// compares every token: no hash can mistake one prefix for another. A block is used whenever one
// that follows it is, so the pool takes back the leaves first and a known block's parent is always
// known. Not thread-safe.
#ifndef TALON_KV_PREFIX_INDEX_H_
#define TALON_KV_PREFIX_INDEX_H_

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace talon {

class PrefixIndex {
 public:
  static constexpr int32_t kRoot = -1;  // the parent of first blocks; other negatives do as well
  static constexpr int32_t kNone = -1;

  // The block with these tokens after `parent`, or kNone.
  int32_t Find(int32_t parent, std::span<const int32_t> tokens) const;
  // A block after `parent` whose tokens begin with these, or kNone.
  int32_t FindBeginning(int32_t parent, std::span<const int32_t> tokens) const;
  // Makes `block` known. REQUIRES: it is not, and neither are its tokens after `parent`.
  void Insert(int32_t parent, std::span<const int32_t> tokens, int32_t block);
  void Remove(int32_t block);
  bool Knows(int32_t block) const { return places_.count(block) > 0; }
  int size() const { return static_cast<int>(blocks_.size()); }

 private:
  using Key = std::pair<int32_t, std::vector<int32_t>>;  // parent, tokens
  std::map<Key, int32_t> blocks_;  // ordered: tokens with the same beginning are neighbours
  std::map<int32_t, std::map<Key, int32_t>::iterator> places_;  // by block
};

}  // namespace talon

#endif  // TALON_KV_PREFIX_INDEX_H_
