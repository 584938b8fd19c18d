#include "serve/http/metrics_server.h"

#include <gtest/gtest.h>
#include <httplib.h>

namespace talon {
namespace {

TEST(MetricsServer, AnswersScrapesAndNothingElse) {
  Metrics metrics;
  metrics.Set(Gauge::kRemoteSessions, 3);
  auto server = StartMetricsServer("127.0.0.1", 0, &metrics);
  ASSERT_TRUE(server.ok()) << server.status().message();
  httplib::Client client("127.0.0.1", (*server)->port());
  for (const char* path : {"/metrics", "/metrics?name=all"}) {
    const auto answer = client.Get(path);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200);
    EXPECT_NE(answer->body.find("talon_remote_sessions 3"), std::string::npos) << answer->body;
  }
  for (const char* path : {"/", "/metricsx", "/x/metrics"}) {
    const auto answer = client.Get(path);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 404) << path;
  }
  const auto posted = client.Post("/metrics", "", "text/plain");
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted->status, 404);
}

TEST(MetricsServer, PagesOfOthersAreRefused) {
  Metrics metrics;
  auto server = StartMetricsServer("127.0.0.1", 0, &metrics);
  ASSERT_TRUE(server.ok()) << server.status().message();
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto status = [&](const httplib::Headers& headers) {
    const auto answer = client.Get("/metrics", headers);
    return answer ? answer->status : 0;
  };
  EXPECT_EQ(status({{"Host", "localhost"}}), 200);
  EXPECT_EQ(status({{"Host", "page.example.com"}}), 403);
  EXPECT_EQ(status({{"Host", "127.0.0.1"}, {"Origin", "http://page.example.com"}}), 403);
  EXPECT_EQ(status({{"Host", "127.0.0.1"}, {"a b", "c"}}), 400);
}

TEST(MetricsServer, APortInUseIsAnError) {
  const Metrics metrics;
  const auto first = StartMetricsServer("127.0.0.1", 0, &metrics);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(StartMetricsServer("127.0.0.1", (*first)->port(), &metrics).ok());
}

}  // namespace
}  // namespace talon
