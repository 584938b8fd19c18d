#include "serve/http/event_stream.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/json.h"

namespace talon {
namespace {

// What a stream gives for these bytes, however they are cut.
struct Reading {
  std::vector<Json> events;
  Status end;
};
Reading Read(std::string_view bytes, size_t piece) {
  Reading reading;
  EventStream stream;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    stream.Read(bytes.substr(at, piece),
                [&](const Json& event) { reading.events.push_back(event); });
  }
  reading.end = stream.End();
  return reading;
}

TEST(EventStream, GivesEachEventOnceHoweverTheBytesAreCut) {
  for (const size_t piece : {1, 2, 7, 1000}) {
    const Reading reading =
        Read("data: {\"a\": 1}\n\n: a comment\n\ndata: {\"a\": 2}\n\ndata: [DONE]\n\n", piece);
    EXPECT_EQ(reading.events, (std::vector<Json>{{{"a", 1}}, {{"a", 2}}})) << piece;
    EXPECT_TRUE(reading.end.ok()) << reading.end.message();
  }
}

TEST(EventStream, SaysWhyAnAnswerIsNotComplete) {
  EXPECT_EQ(Read("data: {\"a\": 1}\n\n", 4).end.message(), "the stream broke off");
  EXPECT_EQ(Read("data: {\"error\": {\"message\": \"too late\"}}\n\n", 4).end.message(),
            "too late");
  EXPECT_EQ(Read("data: {\"error\": 5}\n\n", 4).end.message(), "5");
  EXPECT_EQ(Read("data: {\n\ndata: [DONE]\n\n", 4).end.message(), "an event is not JSON");
}

TEST(EventStream, KeepsABodyThatIsNotAStream) {
  EventStream stream;
  stream.Read(R"({"error": {"message": "no"}})", [](const Json&) { FAIL(); });
  EXPECT_EQ(stream.unread(), R"({"error": {"message": "no"}})");
}

}  // namespace
}  // namespace talon
