#include "text/tokenizer/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace talon {
namespace {

constexpr char32_t kShiftedStart = 0x100;

constexpr bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteLevelTables {
  std::array<char32_t, 256> character{};
  std::array<int, 0x180> byte{};  // by character, -1 if none

  constexpr ByteLevelTables() {
    byte.fill(-1);
    char32_t shifted = kShiftedStart;
    for (int b = 0; b < 256; ++b) {
      character[b] = StandsForItself(b) ? static_cast<char32_t>(b) : shifted++;
      byte[character[b]] = b;
    }
  }
};
constexpr ByteLevelTables kTables;

}  // namespace

void AppendByteLevel(std::string_view bytes, std::string* out) {
  for (const char byte : bytes)
    AppendUtf8(kTables.character[static_cast<unsigned char>(byte)], out);
}

std::optional<std::string> BytesFromByteLevel(std::string_view text) {
  std::string bytes;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, &offset);
    if (c >= kTables.byte.size() || kTables.byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kTables.byte[c]));
  }
  return bytes;
}

}  // namespace talon
