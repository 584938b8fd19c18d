#include "serve/http/guard/host_policy.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(HostPolicy, HostsWithoutTheirPorts) {
  EXPECT_EQ(HostOf("localhost:8080"), "localhost");
  EXPECT_EQ(HostOf("LocalHost."), "localhost");
  EXPECT_EQ(HostOf("[::1]:8080"), "::1");
  EXPECT_EQ(HostOf("[::1]"), "::1");
  EXPECT_EQ(HostOf("a.b-c_d:"), "a.b-c_d");
  for (const char* bad :
       {"", ":80", "a:b", "a:123456", "[::1", "[]", "[::1]x", "a b", "a/b", "u@a", "::1", "."}) {
    EXPECT_FALSE(HostOf(bad)) << bad;
  }
}

TEST(HostPolicy, LoopbackNames) {
  for (const char* host : {"localhost", "a.localhost", "127.0.0.1", "127.8.9.10", "::1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"127.0.0.1.example.com", "127.example.com", "localhost.example.com",
                           "notlocalhost", "0.0.0.0", "128.0.0.1", "::2", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(HostPolicy, AKeylessLoopbackServerKnowsItsNames) {
  const HostPolicy policy({.listen_host = "127.0.0.1"});
  for (const char* host : {"127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:5", ""}) {
    EXPECT_FALSE(policy.Check(host, "")) << host;
  }
  for (const char* host : {"evil.example.com", "evil.example.com:8080", "127.0.0.1.example.com",
                           "203.0.113.1", "a b"}) {
    const auto error = policy.Check(host, "");
    ASSERT_TRUE(error) << host;
    EXPECT_EQ(error->status, 403);
  }
}

TEST(HostPolicy, PagesOfOthersAreRefused) {
  const HostPolicy policy({.listen_host = "localhost"});
  EXPECT_FALSE(policy.Check("localhost", "http://localhost:8080"));
  EXPECT_FALSE(policy.Check("localhost", "https://127.0.0.1:3000"));
  for (const char* origin :
       {"http://evil.example.com", "null", "http://localhost.example.com", "file://", "x"}) {
    EXPECT_TRUE(policy.Check("localhost", origin)) << origin;
  }
  const HostPolicy one({.listen_host = "127.0.0.1", .cors_origin = "https://page.example.com"});
  EXPECT_FALSE(one.Check("localhost", "https://page.example.com"));
  EXPECT_TRUE(one.Check("localhost", "http://page.example.com"));
  EXPECT_TRUE(one.Check("page.example.com", "https://page.example.com"));
  const HostPolicy all({.listen_host = "127.0.0.1", .cors_origin = "*"});
  EXPECT_FALSE(all.Check("localhost", "null"));
  EXPECT_TRUE(all.Check("evil.example.com", "http://evil.example.com"));
}

TEST(HostPolicy, OtherServersAcceptAnyNameUnlessTold) {
  EXPECT_FALSE(HostPolicy({.listen_host = "0.0.0.0"}).Check("a.example.com", "http://b"));
  EXPECT_FALSE(HostPolicy({.listen_host = "127.0.0.1", .needs_key = true}).Check("a", "http://b"));
  const HostPolicy told(
      {.listen_host = "0.0.0.0", .needs_key = true, .allowed_hosts = {"Talon.example.com"}});
  EXPECT_FALSE(told.Check("talon.example.com:443", "https://talon.example.com"));
  EXPECT_FALSE(told.Check("localhost", ""));
  EXPECT_TRUE(told.Check("other.example.com", ""));
}

}  // namespace
}  // namespace talon
