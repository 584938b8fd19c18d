// What the parsers of regex and GBNF share: a place in a text.
#ifndef TALON_GRAMMAR_SCANNER_H_
#define TALON_GRAMMAR_SCANNER_H_

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace talon {

class Scanner {
 public:
  explicit Scanner(std::string_view source) : source_(source) {}

 protected:
  bool AtEnd() const { return at_ >= source_.size(); }
  char Peek() const { return AtEnd() ? '\0' : source_[at_]; }
  bool Take(std::string_view text) {
    if (!source_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  // A decimal number, cut at `most`; false if there is none here.
  bool TakeNumber(int most, int* value) {
    const size_t begin = at_;
    int64_t number = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      number = std::min<int64_t>(number * 10 + (source_[at_++] - '0'), most);
    }
    *value = static_cast<int>(number);
    return at_ > begin;
  }
  // The value of a hexadecimal digit, -1 if there is none here.
  int TakeHexDigit() {
    const char c = Peek();
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (value >= 0) ++at_;
    return value;
  }

  std::string_view source_;
  size_t at_ = 0;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_SCANNER_H_
