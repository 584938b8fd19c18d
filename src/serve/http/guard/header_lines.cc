#include "serve/http/guard/header_lines.h"

#include <algorithm>

namespace talon {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

// Takes the next line off the text.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find(kLineEnd), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + kLineEnd.size(), text->size()));
  return line;
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

// RFC 9110, 5.6.2.
bool IsTokenCharacter(char c) {
  constexpr std::string_view kSigns = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kSigns.find(c) != std::string_view::npos;
}

// Whether a line is the field of that name, given in lower case.
bool IsField(std::string_view line, std::string_view expected) {
  return std::ranges::equal(line.substr(0, line.find(':')), expected, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
  });
}

// What is wrong with a field; "" = nothing.
std::string_view ProblemOf(std::string_view line) {
  if (line.starts_with(' ') || line.starts_with('\t')) return "a folded header line";
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return "a header line without a colon";
  const std::string_view name = line.substr(0, colon);
  if (name.empty() || !std::ranges::all_of(name, IsTokenCharacter)) {
    return "a header name with characters that names do not have";
  }
  return "";
}

ApiError Malformed(std::string_view problem) {
  return {.message = "malformed request: " + std::string(problem), .code = "malformed_header"};
}

}  // namespace

RequestLine ParseRequestLine(std::string_view header) {
  const std::string_view line = TakeLine(&header);
  const size_t method_end = std::min(line.find(' '), line.size());
  const std::string_view rest = line.substr(std::min(method_end + 1, line.size()));
  const size_t target_end = std::min(rest.find(' '), rest.size());
  const std::string_view target = rest.substr(0, target_end);
  return {.method = line.substr(0, method_end),
          .path = target.substr(0, target.find('?')),
          .version = rest.substr(std::min(target_end + 1, rest.size()))};
}

std::optional<ApiError> CheckHeaderLines(std::string_view header) {
  const std::string_view version = ParseRequestLine(header).version;
  std::string_view line = TakeLine(&header);
  if (std::ranges::any_of(line, IsControl)) return Malformed("a control character");
  int hosts = 0;
  for (line = TakeLine(&header); !line.empty(); line = TakeLine(&header)) {
    if (std::ranges::any_of(line, IsControl)) return Malformed("a control character");
    if (const auto problem = ProblemOf(line); !problem.empty()) return Malformed(problem);
    if (IsField(line, "host")) ++hosts;
  }
  if (hosts > 1) return Malformed("two Host headers");
  if (hosts == 0 && version == "HTTP/1.1") return Malformed("no Host header");
  return std::nullopt;
}

std::string_view FieldOf(std::string_view header, std::string_view name) {
  constexpr std::string_view kSpace = " \t";
  TakeLine(&header);
  for (auto line = TakeLine(&header); !line.empty(); line = TakeLine(&header)) {
    if (!IsField(line, name) || line.size() == name.size()) continue;
    const std::string_view value = line.substr(name.size() + 1);
    const size_t begin = value.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return "";
    return value.substr(begin, value.find_last_not_of(kSpace) - begin + 1);
  }
  return "";
}

}  // namespace talon
