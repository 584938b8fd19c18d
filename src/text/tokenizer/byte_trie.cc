#include "text/tokenizer/byte_trie.h"

namespace talon {
namespace {

uint64_t ChildKey(int32_t node, char byte) {
  return static_cast<uint64_t>(static_cast<uint32_t>(node)) << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

void ByteTrie::Insert(std::string_view key, int32_t value) {
  int32_t node = 0;
  for (const char byte : key) {
    if (const int32_t* child = children_.Find(ChildKey(node, byte))) {
      node = *child;
    } else {
      const auto created = static_cast<int32_t>(value_at_.size());
      value_at_.push_back(-1);
      children_.Set(ChildKey(node, byte), created);
      node = created;
    }
  }
  value_at_[node] = value;
}

int32_t ByteTrie::LongestAt(std::string_view text, size_t* length) const {
  int32_t longest = -1;
  int32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int32_t* child = children_.Find(ChildKey(node, text[i]));
    if (child == nullptr) break;
    node = *child;
    if (value_at_[node] >= 0) {
      longest = value_at_[node];
      *length = i + 1;
    }
  }
  return longest;
}

bool ByteTrie::HasPrefix(std::string_view text) const {
  int32_t node = 0;
  for (const char byte : text) {
    const int32_t* child = children_.Find(ChildKey(node, byte));
    if (child == nullptr) return false;
    node = *child;
  }
  return true;
}

}  // namespace talon
