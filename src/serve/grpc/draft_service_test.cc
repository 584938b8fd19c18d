// The draft worker's service without a network: bytes in, bytes out.
#include "serve/grpc/draft_service.h"

#include <gtest/gtest.h>

#include <limits>

#include "spec/drafters/ngram_drafter.h"

namespace talon {
namespace {

using Tokens = std::vector<int32_t>;

const WireLimits kDraftLimits{.max_prompt_tokens = 100};
constexpr int kVocabulary = 10;

class DraftServiceTest : public testing::Test {
 protected:
  DraftServiceTest()
      : sessions_(std::make_unique<NgramDrafter>(), {.max_sessions = 4}),
        service_({.model_name = "lookup", .device = "cpu", .limits = kDraftLimits}) {
    service_.Serve(&sessions_, kVocabulary);
  }

  Result<DraftAnswer> Draft(const std::string& message) {
    TALON_ASSIGN_OR_RETURN(const std::string bytes,
                           service_.Handle({.method = "GenerateDrafts", .message = message}));
    return DecodeDraftAnswer(bytes, kDraftLimits, &span_);
  }
  Result<DraftAnswer> Draft(const DraftCall& call) { return Draft(EncodeDraftCall(call)); }

  DraftSessions sessions_;
  DraftService service_;
  WorkerSpan span_;
};

TEST_F(DraftServiceTest, AnswersLoadingUntilItHasSessions) {
  DraftService loading({.model_name = "lookup"});
  EXPECT_EQ(DecodePingAnswer(loading.Ping().value())->status, "LOADING");
  const std::string message = EncodeDraftCall({.context = {1}});
  const auto early = loading.Handle({.method = "GenerateDrafts", .message = message});
  EXPECT_EQ(early.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(early.status().message().find("LOADING"), 0u);

  const auto ping = DecodePingAnswer(service_.Ping().value());
  ASSERT_TRUE(ping.ok());
  EXPECT_EQ(ping->status, "SERVING");
  EXPECT_EQ(ping->worker_type, "draft");
  EXPECT_EQ(ping->model_name, "lookup");
  EXPECT_EQ(ping->vocab_size, kVocabulary);
  EXPECT_EQ(service_.Handle({.method = "VerifyDrafts"}).status().code(),
            StatusCode::kUnimplemented);
}

TEST_F(DraftServiceTest, AnswersOursAndSpecSplitsCalls) {
  const Tokens context = {1, 2, 3, 4, 1, 2};
  const auto ours =
      Draft({.request_id = "r1", .session_id = "s", .context = context, .max_nodes = 8});
  ASSERT_TRUE(ours.ok()) << ours.status().message();
  EXPECT_EQ(ours->request_id, "r1");
  EXPECT_EQ(ours->drafts.tokens[0], 3);
  EXPECT_EQ(span_.device, "cpu");
  EXPECT_GE(span_.wall_seconds, ours->model_seconds);
  const auto theirs = Draft({.request_id = "r2", .context = context, .max_length = 2});
  ASSERT_TRUE(theirs.ok()) << theirs.status().message();
  EXPECT_EQ(theirs->drafts.tokens, (Tokens{3, 4}));
}

TEST_F(DraftServiceTest, HostileCallsAreRefusedAndTheNextCallWorks) {
  const auto refused = [&](const DraftCall& call, const char* detail) {
    const Status status = Draft(call).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << detail;
    EXPECT_EQ(status.message().find(detail), 0u) << status.message();
  };
  refused({.context = {1, kVocabulary}}, "TOKEN_OUT_OF_RANGE");
  refused({.context = {-1}}, "TOKEN_OUT_OF_RANGE");
  refused({.context = Tokens(101, 1)}, "PROMPT_TOO_LONG");
  refused({.context = {1}, .temperature = std::numeric_limits<float>::quiet_NaN()},
          "BAD_TEMPERATURE");
  refused({.context = {1}, .max_length = 1 << 30}, "max_draft_len");
  refused({.context = {1}, .num_beams = 1 << 30}, "num_beams");
  EXPECT_FALSE(Draft(DraftCall{}).ok());
  EXPECT_FALSE(Draft(std::string("\xff\xff\xff\xff nonsense")).ok());
  EXPECT_TRUE(Draft(DraftCall{.context = {1, 2, 1}}).ok());
}

}  // namespace
}  // namespace talon
