#include "grammar/byte_classes.h"

namespace talon {

ByteClasses::ByteClasses() {
  for (int byte = 0; byte < 256; ++byte) {
    class_of_[byte] = static_cast<uint8_t>(byte);
    bytes_.push_back({static_cast<uint8_t>(byte)});
  }
}

// Each set splits the classes so far.
ByteClasses::ByteClasses(std::span<const ByteSet> sets) {
  int classes = 1;
  for (const ByteSet& set : sets) {
    std::array<int, 512> renamed;  // by old class and membership
    renamed.fill(-1);
    classes = 0;
    for (int byte = 0; byte < 256; ++byte) {
      int& name = renamed[class_of_[byte] * 2 + (set.Has(static_cast<uint8_t>(byte)) ? 1 : 0)];
      if (name < 0) name = classes++;
      class_of_[byte] = static_cast<uint8_t>(name);
    }
  }
  bytes_.resize(classes);
  for (int byte = 0; byte < 256; ++byte) {
    bytes_[class_of_[byte]].push_back(static_cast<uint8_t>(byte));
  }
}

}  // namespace talon
