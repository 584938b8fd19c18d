#include "serve/http/guard/header_lines.h"

#include <gtest/gtest.h>

#include <string>

namespace talon {
namespace {

// The problem of a request with these fields; "" = none.
std::string ProblemOf(const std::string& fields, const std::string& version = "HTTP/1.1") {
  const auto error = CheckHeaderLines("POST /tokenize " + version + "\r\n" + fields + "\r\n");
  if (!error) return "";
  EXPECT_EQ(error->status, 400);
  return error->message;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(HeaderLines, OrdinaryRequestsPass) {
  EXPECT_EQ(ProblemOf("Host: a\r\nContent-Length: 2\r\nX-Empty:\r\nTab:\ta\tb\r\n"), "");
  EXPECT_EQ(ProblemOf("hOST:a\r\nX-Name: caf\xc3\xa9\r\n"), "");
  EXPECT_EQ(ProblemOf("", "HTTP/1.0"), "");
}

TEST(HeaderLines, ASpaceBeforeTheColonIsRefused) {
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nTransfer-Encoding : chunked\r\n"), "name"));
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nContent-Length\t: 2\r\n"), "name"));
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\n: 2\r\n"), "name"));
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nA(b): 2\r\n"), "name"));
}

TEST(HeaderLines, LinesWithoutAColonAreRefused) {
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\ngarbage line\r\n"), "colon"));
}

TEST(HeaderLines, FoldedLinesAreRefused) {
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nX: b\r\n c\r\n"), "folded"));
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nX: b\r\n\tc: d\r\n"), "folded"));
}

TEST(HeaderLines, ControlCharactersAreRefused) {
  using std::string_literals::operator""s;
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nX: b\0c\r\n"s), "control"));
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nX: b\nY: c\r\n"), "control"));  // a line feed alone
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nX: b\rc\r\n"), "control"));
  EXPECT_TRUE(Contains(ProblemOf("Host: a\x7f\r\n"), "control"));
  const auto error = CheckHeaderLines("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(error.has_value());
}

TEST(HeaderLines, ExactlyOneHost) {
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nhost: a\r\n"), "two Host"));
  EXPECT_TRUE(Contains(ProblemOf("Host: a\r\nHost: b\r\n", "HTTP/1.0"), "two Host"));
  EXPECT_TRUE(Contains(ProblemOf("Accept: a\r\n"), "no Host"));
}

TEST(HeaderLines, TheRequestLineInParts) {
  const RequestLine line = ParseRequestLine("GET /a/b?key=secret HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(line.method, "GET");
  EXPECT_EQ(line.path, "/a/b");
  EXPECT_EQ(line.version, "HTTP/1.1");
  EXPECT_EQ(ParseRequestLine("GET\r\n\r\n").method, "GET");
  EXPECT_EQ(ParseRequestLine("GET\r\n\r\n").version, "");
  EXPECT_EQ(ParseRequestLine("").method, "");
}

TEST(HeaderLines, FieldsByName) {
  const std::string_view header =
      "GET / HTTP/1.1\r\nHOST:  a.example \r\nx-Origin: b\r\nEmpty:\r\n\r\n";
  EXPECT_EQ(FieldOf(header, "host"), "a.example");
  EXPECT_EQ(FieldOf(header, "x-origin"), "b");
  EXPECT_EQ(FieldOf(header, "origin"), "");
  EXPECT_EQ(FieldOf(header, "empty"), "");
}

}  // namespace
}  // namespace talon
