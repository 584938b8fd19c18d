// Bytes that some sets of bytes do not tell apart are one class: tables have a column for each
// class instead of 256.
#ifndef TALON_GRAMMAR_BYTE_CLASSES_H_
#define TALON_GRAMMAR_BYTE_CLASSES_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/byte_set.h"

namespace talon {

class ByteClasses {
 public:
  ByteClasses();  // every byte is a class
  explicit ByteClasses(std::span<const ByteSet> sets);

  int size() const { return static_cast<int>(bytes_.size()); }
  int Of(uint8_t byte) const { return class_of_[byte]; }
  // The bytes of each class, ascending: [size].
  const std::vector<std::vector<uint8_t>>& bytes() const { return bytes_; }

 private:
  std::array<uint8_t, 256> class_of_{};
  std::vector<std::vector<uint8_t>> bytes_;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_BYTE_CLASSES_H_
