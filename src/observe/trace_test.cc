#include "observe/trace.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "observe/stage_range.h"

namespace talon {
namespace {

class TraceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Tracer::Open(path_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    tracer_ = std::move(*opened);
    SetActiveTracer(tracer_.get());
  }
  void TearDown() override {
    SetActiveTracer(nullptr);
    std::remove(path_.c_str());
  }

  Json Events() {
    EXPECT_TRUE(tracer_->Close().ok());
    Result<Json> events = ReadJsonFile(path_);
    EXPECT_TRUE(events.ok()) << events.status().message();
    return events.ok() ? *events : Json::array();
  }
  static Json Find(const Json& events, const std::string& name) {
    for (const Json& event : events) {
      if (event["name"] == name) return event;
    }
    ADD_FAILURE() << "no event " << name;
    return {};
  }

  const std::string path_ = testing::TempDir() + "/talon_trace_test.json";
  std::unique_ptr<Tracer> tracer_;
};

TEST_F(TraceTest, AnEmptyTraceIsValid) {
  const Json events = Events();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0]["name"], "process_name");
  EXPECT_EQ(events[0]["args"]["name"], "talon");
}

TEST_F(TraceTest, StagesNestInTheirStep) {
  for (int i = 0; i < 3; ++i) {
    const StageRange step("Step");
    const StageRange verify("Verify");
  }
  const Json events = Events();
  ASSERT_EQ(events.size(), 1 + 3 * 2);
  for (size_t i = 1; i < events.size(); i += 2) {  // written at their ends: the inner one first
    const Json& inner = events[i];
    const Json& outer = events[i + 1];
    EXPECT_EQ(inner["name"], "Verify");
    EXPECT_EQ(outer["name"], "Step");
    EXPECT_EQ(outer["ph"], "X");
    EXPECT_EQ(inner["tid"], outer["tid"]);
    const auto end = [](const Json& event) {
      return event["ts"].get<double>() + event["dur"].get<double>();
    };
    EXPECT_GE(inner["ts"].get<double>(), outer["ts"].get<double>());
    EXPECT_LE(end(inner), end(outer));
  }
}

TEST_F(TraceTest, NotesAreArguments) {
  {
    StageRange range("Verify");
    range.Note("rows", 12);
    range.Note("mode", "full");
  }
  const Json event = Find(Events(), "Verify");
  EXPECT_EQ(event["args"], (Json{{"rows", 12}, {"mode", "full"}}));
}

TEST_F(TraceTest, RequestsGoThroughPhases) {
  tracer_->BeginRequest(7, 100);
  tracer_->EnterPhase(7, RequestPhase::kPrompt);
  tracer_->EnterPhase(7, RequestPhase::kQueued);  // preempted
  tracer_->EnterPhase(7, RequestPhase::kPrompt);
  tracer_->EnterPhase(7, RequestPhase::kPrompt);  // no change
  tracer_->EnterPhase(7, RequestPhase::kDecode);
  tracer_->EndRequest(7, "stop", 42);
  std::string seen;
  double last = 0;
  const Json events = Events();
  for (const Json& event : events) {
    if (event["ph"] == "M") continue;
    seen += event["ph"].get<std::string>() + ":" + event["name"].get<std::string>() + " ";
    EXPECT_EQ(event["id"], 7);
    EXPECT_EQ(event["cat"], "request");
    EXPECT_GE(event["ts"].get<double>(), last);
    last = event["ts"].get<double>();
  }
  EXPECT_EQ(seen,
            "b:request b:queued e:queued b:prompt e:prompt b:queued e:queued b:prompt e:prompt "
            "b:decode e:decode e:request ");
  EXPECT_EQ(Find(events, "request")["args"]["prompt_tokens"], 100);
  EXPECT_EQ(events.back()["args"], (Json{{"finish_reason", "stop"}, {"generated_tokens", 42}}));
}

TEST_F(TraceTest, ClosingEndsWhatIsOpenAndLaterCallsAreIgnored) {
  tracer_->BeginRequest(1, 1);
  tracer_->BeginRequest(2, 1);
  tracer_->EnterPhase(2, RequestPhase::kDecode);
  tracer_->EnterPhase(99, RequestPhase::kDecode);  // unknown
  tracer_->EndRequest(99, "stop", 1);
  const Json events = Events();
  std::map<std::pair<int64_t, std::string>, int> open;
  for (const Json& event : events) {
    if (event["ph"] == "M") continue;
    open[{event["id"].get<int64_t>(), event["name"].get<std::string>()}] +=
        event["ph"] == "b" ? 1 : -1;
  }
  EXPECT_EQ(open.size(), 5);  // each request itself and queued, 2 of them also decode
  for (const auto& [key, balance] : open) EXPECT_EQ(balance, 0) << key.first << " " << key.second;
  { const StageRange after("After"); }
  tracer_->BeginRequest(3, 1);
  EXPECT_EQ(Events(), events);
}

TEST_F(TraceTest, ThreadsKeepTheirEventsApart) {
  constexpr int kRanges = 2000;  // more than the buffer holds
  std::vector<std::thread> threads;
  for (const char* name : {"one", "two"}) {
    threads.emplace_back([this, name] {
      tracer_->NameThread(name);
      for (int i = 0; i < kRanges; ++i) const StageRange range(name);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::string, std::set<int>> thread_of;
  std::map<std::string, int> count;
  for (const Json& event : Events()) {
    if (event["name"] == "thread_name") {
      thread_of[event["args"]["name"]].insert(event["tid"].get<int>());
    } else if (event["ph"] == "X") {
      thread_of[event["name"]].insert(event["tid"].get<int>());
      ++count[event["name"]];
    }
  }
  EXPECT_EQ(count, (std::map<std::string, int>{{"one", kRanges}, {"two", kRanges}}));
  EXPECT_EQ(thread_of["one"].size(), 1);
  EXPECT_NE(thread_of["one"], thread_of["two"]);
}

TEST_F(TraceTest, AnyBytesInANameStayValidJson) {
  tracer_->BeginRequest(1, 1);
  tracer_->EndRequest(1, "a\"\\\n\xff", 0);
  EXPECT_EQ(Events().back()["args"]["finish_reason"], "a\"\\\n\xef\xbf\xbd");
}

TEST(TracerTest, OffRecordsNothing) {
  ASSERT_EQ(ActiveTracer(), nullptr);
  StageRange range("Step");
  range.Note("rows", 1);
}

TEST(TracerTest, FilesThatCannotBeWrittenAreErrors) {
  const auto missing = Tracer::Open(testing::TempDir() + "/no_such_directory/trace.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("no_such_directory"), std::string::npos);
}

TEST(TracerTest, FullDiskIsAnErrorAtTheEndWhereDevFullExists) {
  auto full = Tracer::Open("/dev/full");
  if (!full.ok()) GTEST_SKIP() << "no /dev/full here";
  EXPECT_FALSE((*full)->Close().ok());
  EXPECT_TRUE((*full)->Close().ok());
}

}  // namespace
}  // namespace talon
