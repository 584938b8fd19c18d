#include "remote/telemetry.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"

namespace talon {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

TEST(TelemetryTest, JsonHasSpansAndEvents) {
  Telemetry telemetry;
  telemetry.AddEvent(RemoteEvent::kRoundVerified,
                     {{"round_idx", 3}, {"acceptance_rate", 0.5}, {"result", "h\"it"}});
  const auto now = Telemetry::Clock::now();
  telemetry.AddSpan("orchestrator", "round", now, now + milliseconds(5), {{"round_idx", 3}});
  const json parsed = json::parse(telemetry.ToJson());
  EXPECT_EQ(parsed["dropped_events"], 0);
  ASSERT_EQ(parsed["events"].size(), 1u);
  EXPECT_EQ(parsed["events"][0]["event"], "round_verified");
  EXPECT_EQ(parsed["events"][0]["fields"]["acceptance_rate"], 0.5);
  EXPECT_EQ(parsed["events"][0]["fields"]["result"], "h\"it");
  ASSERT_EQ(parsed["spans"].size(), 1u);
  const json& span = parsed["spans"][0];
  EXPECT_NEAR(span["end_s"].get<double>() - span["begin_s"].get<double>(), 0.005, 1e-9);
}

TEST(TelemetryTest, OldestAreDroppedAndCounted) {
  Telemetry telemetry(/*max_spans=*/2, /*max_events=*/3);
  const auto now = Telemetry::Clock::now();
  for (int i = 0; i < 5; ++i) {
    telemetry.AddEvent(RemoteEvent::kRoundStarted, {{"round_idx", i}});
    telemetry.AddSpan("orchestrator", "round", now, now, {{"round_idx", i}});
  }
  EXPECT_EQ(telemetry.events(), 3u);
  EXPECT_EQ(telemetry.dropped_events(), 2);
  EXPECT_EQ(telemetry.spans(), 2u);
  EXPECT_EQ(telemetry.dropped_spans(), 3);
  const json parsed = json::parse(telemetry.ToJson());
  EXPECT_EQ(parsed["events"][0]["fields"]["round_idx"], 2);
  EXPECT_EQ(parsed["spans"][0]["fields"]["round_idx"], 3);
  EXPECT_EQ(parsed["dropped_spans"], 3);
}

TEST(TelemetryTest, CsvHasOneColumnPerField) {
  Telemetry telemetry;
  telemetry.AddEvent(RemoteEvent::kSpeculationResult, {{"result", "hit"}, {"round_idx", 7}});
  telemetry.AddEvent(RemoteEvent::kRpcError, {{"code", "a,\"b\""}});
  const std::string csv = telemetry.ToCsv();
  const std::string head = csv.substr(0, csv.find('\n'));
  EXPECT_EQ(static_cast<size_t>(std::count(head.begin(), head.end(), ',')),
            Telemetry::FieldNames().size() + 1);
  EXPECT_NE(csv.find("\nspeculation_result,"), std::string::npos);
  EXPECT_NE(csv.find(",7,"), std::string::npos);
  EXPECT_NE(csv.find("\"a,\"\"b\"\"\""), std::string::npos);
}

// Times of a trace event in milliseconds.
double BeginOf(const json& event) { return event["ts"].get<double>() / 1e3; }
double LengthOf(const json& event) { return event["dur"].get<double>() / 1e3; }

TEST(TelemetryTest, TheWorkerSpanLiesInsideTheCall) {
  Telemetry telemetry;
  const auto now = Telemetry::Clock::now();
  telemetry.AddCall({.name = "verify",
                     .worker = "target",
                     .sent = now,
                     .received = now + milliseconds(100),
                     .worker_wall_seconds = 0.06,
                     .worker_model_seconds = 0.04},
                    {{"round_idx", 1}});
  const json trace = json::parse(telemetry.ToTrace());
  ASSERT_EQ(trace.size(), 5u);  // three spans, two tracks
  const json& call = trace[0];
  const json& work = trace[1];
  const json& model = trace[2];
  EXPECT_NEAR(BeginOf(work) - BeginOf(call), 20, 1e-6);
  EXPECT_NEAR(LengthOf(work), 60, 1e-6);
  EXPECT_NEAR(BeginOf(model) - BeginOf(call), 30, 1e-6);
  EXPECT_NEAR(LengthOf(model), 40, 1e-6);
  EXPECT_NE(call["tid"], work["tid"]);
  EXPECT_EQ(work["tid"], model["tid"]);
}

// A worker's clock may run fast: its span is cut to the call.
TEST(TelemetryTest, WorkerTimesAreCutToTheCall) {
  Telemetry telemetry;
  const auto now = Telemetry::Clock::now();
  telemetry.AddCall({.name = "draft",
                     .worker = "draft",
                     .sent = now,
                     .received = now + milliseconds(10),
                     .worker_wall_seconds = 5,
                     .worker_model_seconds = 7});
  const json trace = json::parse(telemetry.ToTrace());
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(LengthOf(trace[i]), 10, 1e-6);
}

TEST(TelemetryTest, TheFileNameSelectsTheFormat) {
  Telemetry telemetry;
  telemetry.AddEvent(RemoteEvent::kPipelineStarted, {});
  const std::string base = testing::TempDir() + "/talon_telemetry_test";
  ASSERT_TRUE(telemetry.Write(base + ".csv").ok());
  ASSERT_TRUE(telemetry.Write(base + ".trace.json").ok());
  ASSERT_TRUE(telemetry.Write(base + ".json").ok());
  EXPECT_TRUE(ReadFile(base + ".csv")->starts_with("event,time_s,round_idx,"));
  EXPECT_TRUE(json::parse(*ReadFile(base + ".trace.json")).is_array());
  EXPECT_TRUE(json::parse(*ReadFile(base + ".json")).contains("events"));
  EXPECT_FALSE(telemetry.Write("/nowhere/at/all.json").ok());
}

}  // namespace
}  // namespace talon
