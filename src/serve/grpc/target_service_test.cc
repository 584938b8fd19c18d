// The target worker's service without a network: bytes in, bytes out.
#include "serve/grpc/target_service.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "engine/sessions/test_sessions.h"

namespace talon {
namespace {

const WireLimits kLimits{.max_tree_nodes = 100, .max_tree_depth = 64, .max_prompt_tokens = 120};

// An encoded call with nested drafts of this depth, written by hand: encoders recurse.
std::string DeepMessage(int depth) {
  constexpr char kChildren = (3 << 3) | 2;  // field 3 of request and node alike, with a length
  std::string message;
  for (int i = 0; i < depth; ++i) {
    std::string field(1, kChildren);
    for (size_t length = message.size();; length >>= 7) {
      field += static_cast<char>((length & 0x7f) | (length > 0x7f ? 0x80 : 0));
      if (length <= 0x7f) break;
    }
    message = field + message;
  }
  return message;
}

class TargetServiceTest : public testing::Test {
 protected:
  TargetServiceTest()
      : sessions_(MakeSessions(TestSessionOptions())),
        service_({.model_name = "small", .device = "cpu", .limits = kLimits}) {}

  Result<VerifyAnswer> Verify(const VerifyCall& call, TreeForm form = TreeForm::kFlat) {
    return Verify(EncodeVerifyCall(call, form));
  }
  Result<VerifyAnswer> Verify(const std::string& message) {
    TALON_ASSIGN_OR_RETURN(const std::string bytes,
                           service_.Handle({.method = "VerifyDrafts", .message = message}));
    return DecodeVerifyAnswer(bytes, kLimits, &span_);
  }
  EndSessionAnswer End(const std::string& id) {
    const std::string message = EncodeEndSessionCall(id);
    const auto bytes = service_.Handle({.method = "EndSession", .message = message});
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    return DecodeEndSessionAnswer(*bytes).value();
  }

  SessionThread sessions_;
  TargetService service_;
  WorkerSpan span_;
};

TEST_F(TargetServiceTest, AnswersLoadingUntilItHasSessions) {
  auto ping = DecodePingAnswer(service_.Ping().value());
  ASSERT_TRUE(ping.ok());
  EXPECT_EQ(ping->status, "LOADING");
  EXPECT_EQ(ping->worker_type, "target");
  ExpectFailure(Verify(FirstCall("a", Ten(), {})), StatusCode::kUnavailable, "LOADING");
  service_.Serve(&sessions_);
  ping = DecodePingAnswer(service_.Ping().value());
  ASSERT_TRUE(ping.ok());
  EXPECT_EQ(ping->status, "SERVING");
  EXPECT_EQ(ping->model_name, "small");
  EXPECT_EQ(ping->vocab_size, kVocabulary);
  EXPECT_EQ(service_.Handle({.method = "Nothing"}).status().code(), StatusCode::kUnimplemented);
}

TEST_F(TargetServiceTest, AnswersInBothTreeForms) {
  service_.Serve(&sessions_);
  const std::vector<int32_t> truth = PlainTokens(Ten(), 4);
  for (const TreeForm form : {TreeForm::kFlat, TreeForm::kNested}) {
    const auto first = Verify(FirstCall("a", Ten(), Chain({truth[0], truth[1], 7})), form);
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_EQ(first->accepted, (std::vector<int32_t>{truth[0], truth[1]}));
    EXPECT_EQ(first->correction, truth[2]);
    EXPECT_EQ(first->prefix_length, 12);
    EXPECT_GT(first->model_seconds, 0);
    EXPECT_GE(span_.wall_seconds, first->model_seconds);
    EXPECT_EQ(span_.device, "cpu");
    const auto next = Verify(DeltaCall("a", {truth[2]}, 12, Chain({truth[3]})), form);
    ASSERT_TRUE(next.ok()) << next.status().message();
    EXPECT_TRUE(next->cache_hit);
    EXPECT_EQ(next->prefix_length, 14);
    EXPECT_TRUE(End("a").was_active);
    EXPECT_FALSE(End("a").was_active);
  }
  EXPECT_EQ(sessions_.snapshot().free_blocks, sessions_.snapshot().blocks);
}

TEST_F(TargetServiceTest, HostileMessagesAreRefusedAndTheNextCallWorks) {
  service_.Serve(&sessions_);
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  DraftForest huge = Chain(std::vector<int32_t>(1'000'000, 1));
  std::fill(huge.parents.begin(), huge.parents.end(), -1);
  ExpectFailure(Verify(FirstCall("a", Ten(), huge)), kInvalid, "TREE_TOO_LARGE");
  ExpectFailure(Verify(DeepMessage(5000)), kInvalid, "TREE_INVALID");
  DraftForest cycle = Chain({1, 2, 3});
  cycle.parents = {2, 0, 1};
  ExpectFailure(Verify(FirstCall("a", Ten(), cycle)), kInvalid, "TREE_INVALID");
  DraftForest nan = Chain({1, 2, 3});
  nan.probs[1] = std::nanf("");
  ExpectFailure(Verify(FirstCall("a", Ten(), nan)), kInvalid, "TREE_INVALID");
  ExpectFailure(Verify(FirstCall("a", Ten(), Chain({kVocabulary}))), kInvalid,
                "TOKEN_OUT_OF_RANGE");
  ExpectFailure(Verify(FirstCall("a", std::vector<int32_t>(500, 1), {})), kInvalid,
                "PROMPT_TOO_LONG");
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string noise = EncodeVerifyCall(FirstCall("a", Ten(), Chain({1, 2, 3})));
    for (int flips = 0; flips < 3; ++flips) {
      noise[random() % noise.size()] = static_cast<char>(random());
    }
    const auto answer = Verify(noise);
    EXPECT_NE(answer.status().code(), StatusCode::kInternal);
  }
  const std::vector<int32_t> truth = PlainTokens(Ten(), 1);
  VerifyCall call = FirstCall("b", Ten(), {});
  call.decode_on_empty = true;
  const auto fine = Verify(call);
  ASSERT_TRUE(fine.ok()) << fine.status().message();
  EXPECT_EQ(fine->correction, truth[0]);
}

TEST_F(TargetServiceTest, DeadlinesAreKept) {
  service_.Serve(&sessions_);
  VerifyCall call = FirstCall("a", Ten(), Chain({1}));
  call.request_id = "r";
  const std::string message = EncodeVerifyCall(call);
  const auto late = service_.Handle(
      {.method = "VerifyDrafts", .message = message, .deadline = SessionThread::Clock::now()});
  EXPECT_TRUE(late.ok() || late.status().code() == StatusCode::kDeadlineExceeded);
  const auto again = Verify(call);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->prefix_length, 10 + static_cast<int>(again->accepted.size()));
}

}  // namespace
}  // namespace talon
