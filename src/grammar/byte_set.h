// A set of byte values.
#ifndef TALON_GRAMMAR_BYTE_SET_H_
#define TALON_GRAMMAR_BYTE_SET_H_

#include <array>
#include <cstdint>

namespace talon {

class ByteSet {
 public:
  static ByteSet Range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (int byte = first; byte <= last; ++byte) set.Add(static_cast<uint8_t>(byte));
    return set;
  }
  static ByteSet Of(uint8_t byte) { return Range(byte, byte); }

  void Add(uint8_t byte) { words_[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool Has(uint8_t byte) const { return (words_[byte >> 6] >> (byte & 63)) & 1; }
  bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }

  ByteSet operator|(const ByteSet& other) const { return With(other, Op::kOr); }
  ByteSet operator&(const ByteSet& other) const { return With(other, Op::kAnd); }
  ByteSet operator-(const ByteSet& other) const { return With(other, Op::kMinus); }
  bool operator==(const ByteSet&) const = default;
  const std::array<uint64_t, 4>& words() const { return words_; }

 private:
  enum class Op { kOr, kAnd, kMinus };
  ByteSet With(const ByteSet& other, Op op) const {
    ByteSet result;
    for (int i = 0; i < 4; ++i) {
      const uint64_t mine = words_[i];
      const uint64_t its = other.words_[i];
      result.words_[i] = op == Op::kOr ? mine | its : op == Op::kAnd ? mine & its : mine & ~its;
    }
    return result;
  }

  std::array<uint64_t, 4> words_{};
};

}  // namespace talon

#endif  // TALON_GRAMMAR_BYTE_SET_H_
