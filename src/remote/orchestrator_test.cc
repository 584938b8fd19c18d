#include "remote/orchestrator.h"

#include <gtest/gtest.h>

#include <random>

#include "grammar/gbnf.h"
#include "grammar/matcher.h"
#include "remote/fake_links.h"

namespace talon {
namespace {

using Kind = FakeFault::Kind;
using Tokens = std::vector<int32_t>;

const Tokens kPrompt = {3, 1, 4, 1, 5};

class OrchestratorTest : public testing::Test {
 protected:
  OrchestratorTest() : target_(&timer_), drafter_(&timer_, kSeed, /*wrong_every=*/4) {}

  GenerateRequest Request(int max_tokens = 60) {
    GenerateRequest request{.prompt = kPrompt};
    request.sampling = {.temperature = 1, .max_tokens = max_tokens, .seed = kSeed};
    return request;
  }
  Orchestrator Make(bool drafts = true) {
    return Orchestrator({.target = &target_,
                         .draft = drafts ? &drafter_ : nullptr,
                         .timer = &timer_,
                         .telemetry = &telemetry_,
                         .metrics = &metrics_},
                        options_);
  }
  GenerateResult Run(bool drafts = true) { return Make(drafts).Generate(Request()); }

  // The target's plain decoding, each token once, in the result and in the updates.
  void ExpectPlainText(const GenerateResult& result, int tokens = 60) {
    EXPECT_EQ(result.TokenIds(), FakeText(kPrompt, kSeed, tokens));
    EXPECT_EQ(result.finish, FinishReason::kLength) << result.error.message();
    EXPECT_EQ(result.seed, kSeed);
    EXPECT_EQ(target_.sessions(), 0u) << "the session was not ended";
  }

  FakeTimer timer_;
  FakeTarget target_;
  FakeDrafter drafter_;
  Telemetry telemetry_;
  Metrics metrics_;
  OrchestratorOptions options_{.eos_ids = {kFakeEos}, .vocab_size = kFakeVocabulary};
};

TEST_F(OrchestratorTest, WithoutADrafterEveryRoundIsOneToken) {
  const GenerateResult result = Run(/*drafts=*/false);
  ExpectPlainText(result);
  EXPECT_EQ(result.stats.passes, 60);
  EXPECT_EQ(target_.whole, 1) << "only the first call has the whole context";
}

TEST_F(OrchestratorTest, DraftsMakeFewerRounds) {
  const GenerateResult result = Run();
  ExpectPlainText(result);
  EXPECT_LT(result.stats.passes, 40);
  EXPECT_EQ(result.stats.emitted, 60);
  EXPECT_GT(result.stats.accepted, 20);
  EXPECT_EQ(target_.whole, 1);
  EXPECT_GT(metrics_.Get(Counter::kRemoteSpeculation, "hit"), 0);
  EXPECT_GT(metrics_.Get(Counter::kRemoteSpeculation, "miss"), 0);
}

TEST_F(OrchestratorTest, DraftsAreAskedForAtTheirOwnTemperatureOrTheRequests) {
  for (const float own : {-1.0f, 0.0f, 0.5f, 2.0f}) {
    options_.draft_temperature = own;
    drafter_.calls.clear();
    ExpectPlainText(Run());
    ASSERT_FALSE(drafter_.calls.empty());
    for (const DraftCall& call : drafter_.calls) {
      EXPECT_EQ(call.temperature, own < 0 ? 1 : own) << own;
    }
  }
}

TEST_F(OrchestratorTest, UpdatesAddUpToTheResult) {
  GenerateRequest request = Request();
  request.watched = true;
  Tokens seen;
  request.on_update = [&](const RequestUpdate& update) {
    for (const EmittedToken& token : update.tokens) seen.push_back(token.token);
    ASSERT_TRUE(update.tree && update.stats);
    const VerifiedTree& tree = *update.tree;
    ASSERT_EQ(tree.path.size() - 1, std::min(update.tokens.size() - 1, tree.path.size() - 1));
    for (size_t i = 1; i < tree.path.size(); ++i) {
      EXPECT_EQ(tree.tokens[tree.path[i]], update.tokens[i - 1].token);
      EXPECT_TRUE(update.tokens[i - 1].drafted);
    }
  };
  const GenerateResult result = Make().Generate(request);
  EXPECT_EQ(seen, result.TokenIds());
}

// Every draft is right: but for the first round all drafting is done while the target works.
TEST_F(OrchestratorTest, OverlapHidesDrafting) {
  drafter_ = FakeDrafter(&timer_, kSeed, /*wrong_every=*/0);
  const GenerateResult overlapped = Run();
  ExpectPlainText(overlapped);
  EXPECT_EQ(overlapped.stats.draft_seconds, 0);
  EXPECT_EQ(metrics_.Get(Counter::kRemoteSpeculation, "miss"), 0);
  options_.draft.overlap = false;
  const GenerateResult in_turn = Run();
  ExpectPlainText(in_turn);
  EXPECT_GT(in_turn.stats.draft_seconds, 0);
}

TEST_F(OrchestratorTest, StopTokensAndLimitsEndTheRequestInsideAPath) {
  const Tokens text = FakeText(kPrompt, kSeed, 60);
  GenerateRequest request = Request();
  request.sampling.stop_token_ids = {text[20]};
  const auto first = std::ranges::find(text, text[20]);
  const GenerateResult stopped = Make().Generate(request);
  EXPECT_EQ(stopped.TokenIds(), Tokens(text.begin(), first + 1));
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  for (int length = 1; length < 12; ++length) {
    const GenerateResult result = Make().Generate(Request(length));
    EXPECT_EQ(result.TokenIds(), Tokens(text.begin(), text.begin() + length));
    EXPECT_EQ(result.finish, FinishReason::kLength);
  }
  options_.max_length = static_cast<int>(kPrompt.size()) + 9;
  EXPECT_EQ(Run().tokens.size(), 9u);
  options_.max_length = 0;
  options_.max_rounds = 3;
  EXPECT_LT(Run().tokens.size(), 25u);
}

TEST_F(OrchestratorTest, LostAnswersAreNotVerifiedTwice) {
  target_.faults = {{}, {}, {Kind::kLost}, {}, {Kind::kLost}, {Kind::kRefused}, {Kind::kRefused}};
  const GenerateResult result = Run();
  ExpectPlainText(result);
  EXPECT_EQ(target_.verified, result.stats.passes) << "a retry has the same request id";
  EXPECT_EQ(target_.whole, 1);
}

TEST_F(OrchestratorTest, AnswersToOtherCallsAreIgnored) {
  target_.faults = {{}, {Kind::kMistaken}, {}, {Kind::kMistaken}, {Kind::kMistaken}};
  ExpectPlainText(Run());
}

TEST_F(OrchestratorTest, AnEvictedSessionGetsTheWholeContext) {
  target_.faults = {{}, {}, {Kind::kForgotten}, {}, {}, {Kind::kForgotten}};
  const GenerateResult result = Run();
  ExpectPlainText(result);
  EXPECT_EQ(target_.whole, 3);
  EXPECT_EQ(metrics_.Total(Counter::kRemoteDesyncs), 2);
}

TEST_F(OrchestratorTest, AnInternalErrorGetsTheWholeContextOnce) {
  target_.faults = {{}, {Kind::kRefused, Internal("INVARIANT: lengths differ")}};
  ExpectPlainText(Run());
  target_.faults = {{},
                    {Kind::kRefused, Internal("INVARIANT: lengths differ")},
                    {Kind::kRefused, Internal("INVARIANT: lengths differ")}};
  const GenerateResult result = Run();
  EXPECT_EQ(result.finish, FinishReason::kError);
  EXPECT_EQ(result.TokenIds(), FakeText(kPrompt, kSeed, 1)) << "what was confirmed stays";
}

TEST_F(OrchestratorTest, AFullTargetIsTriedFiveTimes) {
  const FakeFault full{Kind::kRefused, ResourceExhausted("KV_FULL: need 3 blocks, 0 free")};
  target_.faults = {{}, full, full, full, full};
  ExpectPlainText(Run());
  target_.faults = {{}, full, full, full, full, full};
  const GenerateResult result = Run();
  EXPECT_EQ(result.finish, FinishReason::kError);
  EXPECT_EQ(result.error.code(), StatusCode::kResourceExhausted);
}

// A worker that restarts: unavailable for seconds, then without the session.
TEST_F(OrchestratorTest, AnUnavailableTargetIsRetriedUntilItAnswers) {
  target_.faults = {{}, {}};
  for (int i = 0; i < 20; ++i) target_.faults.push_back({Kind::kRefused});
  target_.faults.push_back({Kind::kForgotten});
  testing::internal::CaptureStderr();
  ExpectPlainText(Run());
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "target worker: connection lost; trying for 30 s\n")
      << "told once, while it is waited for";
  EXPECT_EQ(target_.whole, 2);
}

TEST_F(OrchestratorTest, AnUnavailableTargetEndsTheRequestWithItsConfirmedTokens) {
  target_.faults = {{}, {}};
  for (int i = 0; i < 1000; ++i) target_.faults.push_back({Kind::kRefused});
  const auto begin = timer_.Now();
  const GenerateResult result = Run();
  EXPECT_EQ(result.finish, FinishReason::kTimeout);
  EXPECT_EQ(result.TokenIds(), FakeText(kPrompt, kSeed, static_cast<int>(result.tokens.size())));
  EXPECT_GE(result.tokens.size(), 2u);
  const double seconds = SecondsBetween(begin, timer_.Now());
  EXPECT_GT(seconds, 25);
  EXPECT_LT(seconds, 31);
}

TEST_F(OrchestratorTest, ATargetThatNeverAnsweredIsAnError) {
  for (int i = 0; i < 1000; ++i) target_.faults.push_back({Kind::kRefused});
  const GenerateResult result = Run();
  EXPECT_EQ(result.finish, FinishReason::kError);
  EXPECT_EQ(result.error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(result.tokens.empty());
}

TEST_F(OrchestratorTest, ATargetThatCannotBeReachedIsToldIfTimeRunsOutInACall) {
  target_.faults = {{Kind::kRefused, Unavailable("connection refused")},
                    {Kind::kRefused, DeadlineExceeded("too late")}};
  EXPECT_EQ(Run().error.message(), "target: connection refused");
}

TEST_F(OrchestratorTest, DeadlineExceededEndsTheRequestAtOnce) {
  target_.faults = {{}, {Kind::kRefused, DeadlineExceeded("too late")}};
  const GenerateResult result = Run();
  EXPECT_EQ(result.finish, FinishReason::kTimeout);
  EXPECT_EQ(result.tokens.size(), 1u);
}

TEST_F(OrchestratorTest, WithoutItsDrafterDecodingIsPlainUntilItAnswersAgain) {
  for (int i = 0; i < 3; ++i) drafter_.faults.push_back({Kind::kRefused});
  const GenerateResult result = Make().Generate(Request(200));
  ExpectPlainText(result, 200);
  EXPECT_EQ(metrics_.Get(Counter::kSpecFallback, "draft_worker_down"), 1);
  EXPECT_TRUE(drafter_.faults.empty()) << "it was asked again";
  EXPECT_GT(result.stats.accepted, 0) << "it came back";
  EXPECT_EQ(drafter_.calls[1].session_id, drafter_.calls[0].session_id) << "as if nothing had been";
}

TEST_F(OrchestratorTest, ADrafterThatNeverAnswersDelaysNoRound) {
  for (int i = 0; i < 1000; ++i) drafter_.faults.push_back({Kind::kRefused});
  const GenerateResult result = Run();
  ExpectPlainText(result);
  EXPECT_EQ(result.stats.passes, 60);
}

// Slow drafts that are always wrong: no round waits for them or verifies them.
TEST_F(OrchestratorTest, WrongDraftsDelayNoRound) {
  FakeDrafter useless(&timer_, kSeed + 1, /*wrong_every=*/0);
  useless.milliseconds = 30;
  const auto begin = timer_.Now();
  const GenerateResult result =
      Orchestrator({.target = &target_, .draft = &useless, .timer = &timer_}, options_)
          .Generate(Request(100));
  EXPECT_EQ(result.TokenIds(), FakeText(kPrompt, kSeed, 100));
  EXPECT_NEAR(SecondsBetween(begin, timer_.Now()), 100 * 0.010, 1e-9);
  EXPECT_EQ(result.stats.drafted, 0);
  EXPECT_GT(useless.calls.size(), 8u) << "it is asked now and then";
  EXPECT_LT(useless.calls.size(), 20u);
}

TEST_F(OrchestratorTest, GoodDraftsAreUsedAfterOnePlainRound) {
  drafter_ = FakeDrafter(&timer_, kSeed, /*wrong_every=*/0);
  const int64_t careful = Run().stats.passes;
  options_.draft.adaptive = false;
  EXPECT_LE(careful, Run().stats.passes + 1);
}

// The second request starts with the first one's state of the drafter.
TEST_F(OrchestratorTest, TheStateOfTheDrafterIsKeptForTheNextRequest) {
  drafter_ = FakeDrafter(&timer_, kSeed, /*wrong_every=*/0);
  Orchestrator orchestrator = Make();
  const int64_t first = orchestrator.Generate(Request()).stats.passes;
  EXPECT_LT(orchestrator.Generate(Request()).stats.passes, first);
}

TEST_F(OrchestratorTest, CancelEndsTheRequestBetweenRounds) {
  int asked = 0;
  Orchestrator orchestrator(
      {.target = &target_, .timer = &timer_, .cancelled = [&] { return ++asked > 5; }}, options_);
  const GenerateResult result = orchestrator.Generate(Request());
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_EQ(result.TokenIds(), FakeText(kPrompt, kSeed, 5));
}

// Whatever fails, the text is the same, each token once.
TEST_F(OrchestratorTest, RandomFaultsDoNotChangeTheText) {
  std::mt19937 random(3);
  for (int run = 0; run < 60; ++run) {
    target_.faults.clear();
    drafter_.faults.clear();
    for (int i = 0; i < 40; ++i) {
      FakeFault fault;
      const unsigned dice = random() % 12;
      if (dice == 0) fault.kind = Kind::kRefused;
      if (dice == 1) fault.kind = Kind::kLost;
      if (dice == 2) fault.kind = Kind::kForgotten;
      if (dice == 3) fault.kind = Kind::kMistaken;
      target_.faults.push_back(fault);
      drafter_.faults.push_back({random() % 4 == 0 ? Kind::kRefused : Kind::kNone});
    }
    options_.draft.overlap = random() % 4 != 0;
    options_.draft.num_beams = 1 + static_cast<int>(random() % 4);
    options_.draft.max_length = 1 + static_cast<int>(random() % 8);
    drafter_.ready = random() % 3 != 0;
    SCOPED_TRACE(run);
    ExpectPlainText(Run());
  }
}

TEST_F(OrchestratorTest, EveryCallHasTheGrammarAndWhereTheAnswerBegins) {
  const TokenTrie trie({"a"});
  const GrammarSpec spec{.kind = GrammarSpec::Kind::kRegex, .source = "a"};
  GenerateRequest request = Request();
  request.sampling.grammar = std::make_shared<Matcher>(RegexGrammar("a").value(), &trie);
  request.sampling.grammar->set_spec(spec);
  Orchestrator orchestrator = Make();
  ASSERT_TRUE(orchestrator.Check(request).ok());
  const GenerateResult result = orchestrator.Generate(request);
  ASSERT_TRUE(result.error.ok()) << result.error.message();
  ASSERT_GT(target_.asked.size(), 1);
  for (const VerifyCall& call : target_.asked) {
    EXPECT_EQ(call.grammar, spec);
    EXPECT_EQ(call.answer_start, static_cast<int>(Request().prompt.size()));
  }
}

TEST_F(OrchestratorTest, ChecksNameTheUnsupportedParameter) {
  const Orchestrator orchestrator = Make();
  EXPECT_TRUE(orchestrator.Check(Request()).ok());
  GenerateRequest request = Request();
  request.sampling.repetition_penalty = 1.5f;
  EXPECT_EQ(orchestrator.Check(request).message(),
            "repetition_penalty: not possible with a remote target");
  request = Request();
  request.sampling.logprobs = 2;
  EXPECT_FALSE(orchestrator.Check(request).ok());
  request = Request();
  request.prompt.push_back(kFakeVocabulary);
  EXPECT_EQ(orchestrator.Check(request).message(), "prompt: token 50 at 5, vocabulary 50");
  request.prompt.clear();
  EXPECT_FALSE(orchestrator.Check(request).ok());
  request = Request();
  request.stop = {"x"};
  EXPECT_FALSE(orchestrator.Check(request).ok()) << "no tokenizer";
}

TEST_F(OrchestratorTest, TelemetryHasOneEventPerRound) {
  target_.faults = {{}, {Kind::kForgotten}};
  Run();
  const std::string json = telemetry_.ToJson();
  for (const char* name :
       {"pipeline_started", "round_started", "rpc_request_sent", "rpc_response_received",
        "round_verified", "speculation_result", "verify_retry_full_context", "pipeline_completed",
        "overlap_savings_ms", "k_pid_integral"}) {
    EXPECT_NE(json.find(name), std::string::npos) << name;
  }
}

// A target of another kind, or a broken one.
TEST_F(OrchestratorTest, InconsistentAnswersEndTheRequest) {
  class Liar : public TargetLink {
   public:
    explicit Liar(VerifyAnswer answer) : answer_(std::move(answer)) {}
    Result<VerifyReply> Verify(const VerifyCall& call, RemoteClock::time_point) override {
      answer_.request_id = call.request_id;
      return VerifyReply{.answer = answer_};
    }
    Status EndSession(const std::string&, RemoteClock::time_point) override { return OkStatus(); }
    Result<PingAnswer> Ping(RemoteClock::time_point) override { return PingAnswer{}; }

   private:
    VerifyAnswer answer_;
  };
  for (const VerifyAnswer& answer :
       {VerifyAnswer{}, VerifyAnswer{.accepted = {1}, .correction = 2},
        VerifyAnswer{.correction = kFakeVocabulary}, VerifyAnswer{.correction = -1}}) {
    Liar liar(answer);
    const GenerateResult result =
        Orchestrator({.target = &liar, .timer = &timer_}, options_).Generate(Request());
    EXPECT_EQ(result.finish, FinishReason::kError);
    EXPECT_EQ(result.error.code(), StatusCode::kInternal);
    EXPECT_TRUE(result.tokens.empty());
  }
}

}  // namespace
}  // namespace talon
