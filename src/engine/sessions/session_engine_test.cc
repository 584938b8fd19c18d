// What calls of a session do, one by one.
#include "engine/sessions/session_engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/log.h"
#include "engine/sessions/test_sessions.h"
#include "grammar/gbnf.h"

namespace talon {
namespace {

// The specification's example: prompt of 10, forest of 6, accepted 2.
TEST(SessionEngine, WorkedExample) {
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 4);
  DraftForest drafts{
      .tokens = {truth[0], Other(truth[0]), truth[1], Other(truth[1]), Other(truth[2]), 7},
      .parents = {-1, -1, 0, 0, 2, 1},
      .probs = {1, 1, 1, 1, 1, 1}};
  const auto first = RunCall(engine.get(), FirstCall("a", Ten(), drafts));
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_FALSE(first->cache_hit);
  EXPECT_EQ(first->accepted, (std::vector<int32_t>{truth[0], truth[1]}));
  EXPECT_EQ(first->correction, truth[2]);
  EXPECT_EQ(first->prefix_length, 12);
  EXPECT_EQ(first->rows, 9 + 7);
  EXPECT_FALSE(first->finished);
  const Session* session = engine->sessions().Find("a");
  EXPECT_EQ(session->sequence.committed_len, 12);

  const auto next = RunCall(engine.get(), DeltaCall("a", {truth[2]}, 12, Chain({truth[3]})));
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_TRUE(next->cache_hit);
  EXPECT_EQ(next->accepted, std::vector<int32_t>{truth[3]});
  EXPECT_EQ(next->prefix_length, 14);
  EXPECT_EQ(next->rows, 2);
}

TEST(SessionEngine, BatchEqualsSessionsAlone) {
  std::mt19937 random(21);
  std::vector<VerifyCall> calls;
  for (int i = 0; i < 8; ++i) {
    const GenerateRequest request = RandomRequest(random, false);
    VerifyCall call = FirstCall(fmt::format("{}", i), request.prompt, {});
    call.drafts = RandomForest(random, PlainTokens({request})[0], 20, kVocabulary);
    call.temperature = request.sampling.temperature;
    call.seed = request.sampling.seed.value_or(0);
    call.decode_on_empty = true;
    calls.push_back(call);
  }
  const auto together = RunCalls(MakeSessions(TestSessionOptions(8)).get(), calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto alone = RunCall(MakeSessions(TestSessionOptions(1)).get(), calls[i]);
    ASSERT_TRUE(together[i].ok() && alone.ok());
    EXPECT_EQ(together[i]->accepted, alone->accepted);
    EXPECT_EQ(together[i]->correction, alone->correction);
    EXPECT_EQ(together[i]->prefix_length, alone->prefix_length);
    EXPECT_EQ(together[i]->rows, alone->rows);
  }
}

// Calls of one session that arrive together are served one after the other.
TEST(SessionEngine, CallsOfOneSessionKeepTheirOrder) {
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 6);
  const auto answers = RunCalls(engine.get(), {FirstCall("a", Ten(), Chain({truth[0], truth[1]})),
                                               DeltaCall("a", {truth[2]}, 12, Chain({truth[3]})),
                                               DeltaCall("a", {truth[4]}, 14, Chain({truth[5]}))});
  for (const auto& answer : answers) ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answers[2]->prefix_length, 16);
}

TEST(SessionEngine, EmptyTreeLeavesAPendingToken) {
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 3);
  const auto first = RunCall(engine.get(), FirstCall("a", Ten(), {}));
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->accepted.empty());
  EXPECT_FALSE(first->correction.has_value());
  EXPECT_EQ(first->prefix_length, 10);
  EXPECT_EQ(engine->sessions().Find("a")->sequence.committed_len, 9);
  // Nothing new: the pending token is the root.
  const auto second = RunCall(engine.get(), DeltaCall("a", {}, 10, Chain({truth[0]})));
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(second->accepted, std::vector<int32_t>{truth[0]});
  EXPECT_EQ(second->correction, truth[1]);
  EXPECT_EQ(second->prefix_length, 11);
  // An empty chain after that: the last token's row is computed once more.
  VerifyCall again = DeltaCall("a", {}, 11, {});
  again.decode_on_empty = true;
  const auto third = RunCall(engine.get(), again);
  ASSERT_TRUE(third.ok()) << third.status().message();
  EXPECT_EQ(third->correction, truth[1]);
  EXPECT_EQ(third->prefix_length, 11);
  EXPECT_EQ(third->rows, 1);
  const auto fourth = RunCall(engine.get(), DeltaCall("a", {truth[1]}, 11, Chain({truth[2]})));
  ASSERT_TRUE(fourth.ok());
  EXPECT_EQ(fourth->accepted, std::vector<int32_t>{truth[2]});
}

TEST(SessionEngine, RebuildKeepsTheCommonBeginning) {
  const auto engine = MakeSessions(TestSessionOptions());
  std::vector<int32_t> prompt = Ten();
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", prompt, Chain({1}))).ok());
  prompt[7] = 100;
  const std::vector<int32_t> truth = PlainTokens(prompt, 1);
  const auto rebuilt = RunCall(engine.get(), FirstCall("a", prompt, Chain({Other(truth[0])})));
  ASSERT_TRUE(rebuilt.ok());
  EXPECT_FALSE(rebuilt->cache_hit);
  EXPECT_EQ(rebuilt->correction, truth[0]);
  EXPECT_EQ(rebuilt->rows, 2 + 2);  // two tokens before the root, the root and a draft
}

TEST(SessionEngine, FullPromptWithLengthThatExtendsTheSessionIsAHit) {
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 2);
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({truth[0]}))).ok());
  std::vector<int32_t> context = Ten();
  context.insert(context.end(), truth.begin(), truth.end());
  VerifyCall call = FirstCall("a", context, {});
  call.expected_prefix = 11;
  call.decode_on_empty = true;
  const auto hit = RunCall(engine.get(), call);
  ASSERT_TRUE(hit.ok());
  EXPECT_TRUE(hit->cache_hit);
  EXPECT_EQ(hit->rows, 1);
  EXPECT_EQ(hit->prefix_length, 12);
}

TEST(SessionEngine, RepeatedRequestIdGetsTheSameAnswer) {
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 3);
  VerifyCall call = FirstCall("a", Ten(), Chain({truth[0], truth[1]}));
  call.request_id = "r1";
  const auto answers = RunCalls(engine.get(), {call, call});
  const auto later = RunCall(engine.get(), call);
  for (const auto* answer : {&answers[0], &answers[1], &later}) {
    ASSERT_TRUE(answer->ok());
    EXPECT_EQ((*answer)->accepted, (std::vector<int32_t>{truth[0], truth[1]}));
    EXPECT_EQ((*answer)->correction, truth[2]);
    EXPECT_EQ((*answer)->prefix_length, 12);
    EXPECT_FALSE((*answer)->cache_hit);
  }
  EXPECT_EQ(engine->metrics().Total(Counter::kSpecVerifyPasses), 1);
  EXPECT_TRUE(RunCall(engine.get(), DeltaCall("a", {truth[2]}, 12, Chain({1}))).ok());
}

TEST(SessionEngine, CallsWithoutASessionLeaveNothing) {
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 2);
  const auto answer = RunCall(engine.get(), FirstCall("", Ten(), Chain({truth[0]})));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->accepted, std::vector<int32_t>{truth[0]});
  EXPECT_EQ(answer->prefix_length, 11);
  EXPECT_EQ(engine->sessions().size(), 0);
  EXPECT_EQ(engine->kv().pool().used_blocks(), 0);
  ExpectFailure(RunCall(engine.get(), DeltaCall("", {1}, 11, Chain({1}))),
                StatusCode::kInvalidArgument, "PROMPT_EMPTY");
}

TEST(SessionEngine, StopTokensEndThePath) {
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 4);
  VerifyCall call = FirstCall("a", Ten(), Chain({truth[0], truth[1], truth[2]}));
  call.stop_token_ids = {truth[1]};
  const auto inside = RunCall(engine.get(), call);
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(inside->accepted, (std::vector<int32_t>{truth[0], truth[1]}));
  EXPECT_FALSE(inside->correction.has_value());
  EXPECT_TRUE(inside->finished);
  EXPECT_EQ(inside->prefix_length, 12);
  // The client may go on all the same.
  VerifyCall more = DeltaCall("a", {}, 12, {});
  more.decode_on_empty = true;
  const auto next = RunCall(engine.get(), more);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->correction, truth[2]);
  EXPECT_FALSE(next->finished);

  call.session_id = "b";
  call.drafts = Chain({truth[0]});
  const auto bonus = RunCall(engine.get(), call);
  ASSERT_TRUE(bonus.ok());
  EXPECT_EQ(bonus->correction, truth[1]);
  EXPECT_TRUE(bonus->finished);
  EXPECT_EQ(bonus->prefix_length, 11);
}

TEST(SessionEngine, DesyncSaysSoAndChangesNothing) {
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 4);
  ExpectFailure(RunCall(engine.get(), DeltaCall("a", {1}, 10, Chain({1}))),
                StatusCode::kFailedPrecondition, "CACHE_EVICTED_DELTA_ONLY");
  EXPECT_EQ(engine->sessions().size(), 0);
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({truth[0]}))).ok());
  const uint64_t content = engine->kv().audit().ContentHash(engine->sessions().Find("a")->sequence);
  ExpectFailure(RunCall(engine.get(), DeltaCall("a", {1}, 10, Chain({1}))),
                StatusCode::kFailedPrecondition, "CACHE_EVICTED_DELTA_ONLY");
  VerifyCall other = DeltaCall("a", {1}, 11, Chain({1}));
  other.prefix_hash = 1;
  ExpectFailure(RunCall(engine.get(), other), StatusCode::kFailedPrecondition,
                "CACHE_EVICTED_DELTA_ONLY");
  EXPECT_EQ(engine->metrics().Get(Counter::kRemoteDesyncs, "CACHE_EVICTED_DELTA_ONLY"), 3);
  EXPECT_EQ(engine->kv().audit().ContentHash(engine->sessions().Find("a")->sequence), content);
  const auto next = RunCall(engine.get(), DeltaCall("a", {truth[1]}, 11, Chain({truth[2]})));
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_EQ(next->correction, truth[3]);
}

TEST(SessionEngine, ContextLimitEqualsPlainDecoding) {
  SessionOptions options = TestSessionOptions();
  options.engine.max_length = 16;
  const auto engine = MakeSessions(options);
  const std::vector<int32_t> truth = PlainTokens(Ten(), 8);
  const auto all = RunCall(engine.get(), FirstCall("a", Ten(), Chain(truth)));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->accepted, std::vector<int32_t>(truth.begin(), truth.begin() + 6));
  EXPECT_FALSE(all->correction.has_value());
  EXPECT_EQ(all->prefix_length, 16);
  ExpectFailure(RunCall(engine.get(), DeltaCall("a", {}, 16, Chain({1}))),
                StatusCode::kInvalidArgument, "PROMPT_TOO_LONG");
}

TEST(SessionEngine, TheLargestTreeIsVerifiedInOnePass) {
  SessionOptions options = TestSessionOptions();
  options.max_tree_nodes = 500;
  options.engine.max_sequences = 1;
  const auto engine = MakeSessions(options);
  const std::vector<int32_t> truth = PlainTokens(Ten(), 3);
  DraftForest drafts;
  for (int i = 0; i < 498; ++i) {
    drafts.tokens.push_back(i);
    drafts.parents.push_back(-1);
    drafts.probs.push_back(0.1f);
  }
  drafts.tokens.insert(drafts.tokens.end(), {truth[1], truth[2]});
  drafts.parents.insert(drafts.parents.end(), {truth[0], 498});
  drafts.probs.insert(drafts.probs.end(), {1, 1});
  ASSERT_LT(truth[0], 498);
  const auto answer = RunCall(engine.get(), FirstCall("a", Ten(), drafts));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->accepted, truth);
  EXPECT_EQ(engine->metrics().Total(Counter::kSpecVerifyPasses), 1);
}

// A commit that fails is repeated without drafts: fewer tokens, the same text.
TEST(SessionEngine, FailedCommitIsRepeatedPlainly) {
  SetLogLevel(LogLevel::kOff);
  const auto engine = MakeSessions(TestSessionOptions());
  const std::vector<int32_t> truth = PlainTokens(Ten(), 2);
  engine->kv().InjectCommitFault(1);
  const auto answer = RunCall(engine.get(), FirstCall("a", Ten(), Chain({truth[0], truth[1]})));
  SetLogLevel(LogLevel::kWarning);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_TRUE(answer->accepted.empty());
  EXPECT_EQ(answer->correction, truth[0]);
  EXPECT_EQ(answer->prefix_length, 10);
}

// Known blocks are shared by sessions of one beginning, and by those that come back.
TEST(SessionEngine, KnownBlocksAreAttached) {
  SessionOptions options = TestSessionOptions();
  options.engine.prefix_cache = true;
  const auto engine = MakeSessions(options);
  std::mt19937 random(2);
  const std::vector<int32_t> prompt = RandomPrompt(random, 70, kVocabulary);
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", prompt, Chain({1}))).ok());
  const auto other = RunCall(engine.get(), FirstCall("b", prompt, Chain({1})));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->rows, 69 - 64 + 2);
  EXPECT_FALSE(other->cache_hit);
  engine->EndSession("a");
  engine->EndSession("b");
  const auto back = RunCall(engine.get(), FirstCall("a", prompt, Chain({1})));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->rows, 69 - 64 + 2);
}

// Drafts drawn from q are accepted with min(1, p / q): always where q is tiny. What is no
// distribution is ignored.
TEST(SessionEngine, RejectionUsesTheDrawsOfTheDrafts) {
  const auto engine = MakeSessions(TestSessionOptions());
  std::mt19937 random(4);
  int rejection = 0, match = 0, ignored = 0;
  for (int i = 0; i < 100; ++i) {
    const auto draft = static_cast<int32_t>(random() % 511);
    VerifyCall call = FirstCall("", Ten(), Chain({draft}));
    call.temperature = 100;  // all tokens are about equally likely
    call.seed = random();
    match += static_cast<int>(RunCall(engine.get(), call)->accepted.size());
    call.rejection = true;
    call.drafts.draws = {{{{draft, 1e-4f}, {511, 1 - 1e-4f}}}};
    rejection += static_cast<int>(RunCall(engine.get(), call)->accepted.size());
    call.drafts.draws = {{{{draft, 1e-4f}, {511, std::nanf("")}}}};
    ignored += static_cast<int>(RunCall(engine.get(), call)->accepted.size());
  }
  EXPECT_EQ(rejection, 100);
  EXPECT_LT(match, 10);
  EXPECT_LT(ignored, 10);
}

// Token i is the letter i % 26, once or twice.
const TokenTrie& LetterTrie() {
  static const TokenTrie trie([] {
    std::vector<std::string> bytes(kVocabulary);
    for (int i = 1; i < kVocabulary; ++i) bytes[i] = std::string(i % 7 == 0 ? 2 : 1, 'a' + i % 26);
    return bytes;
  }());
  return trie;
}

TEST(SessionEngine, GrammarEqualsPlainDecodingWithIt) {
  const auto engine = MakeSessions(TestSessionOptions());
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    const auto matcher = std::make_shared<Matcher>(
        RegexGrammar("([a-f]{2,9}(bee|see)|zz)x{3,20}").value(), &LetterTrie());
    GenerateRequest request = Plain(RandomPrompt(random, 20, kVocabulary), 60);
    request.sampling.stop_token_ids = {2};
    request.sampling.grammar = matcher;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = 5;
    const std::vector<int32_t> plain = PlainTokens({request})[0];
    ASSERT_EQ(plain.back(), 2) << "the text ends where the grammar does";

    std::vector<int32_t> context = request.prompt;
    bool finished = false;
    while (!finished && context.size() < request.prompt.size() + plain.size()) {
      const std::span<const int32_t> truth =
          std::span(plain).subspan(context.size() - request.prompt.size());
      VerifyCall call = FirstCall("", context, RandomForest(random, truth, 16, kVocabulary));
      call.decode_on_empty = true;
      call.stop_token_ids = {2};
      call.temperature = request.sampling.temperature;
      call.seed = 5;
      call.answer_start = static_cast<int>(request.prompt.size());
      engine->Submit(std::move(call), matcher);
      while (engine->HasWork()) engine->RunStep({});
      const auto answers = engine->TakeFinished();
      ASSERT_TRUE(answers[0].answer.ok()) << answers[0].answer.status().message();
      const VerifyAnswer& answer = *answers[0].answer;
      context.insert(context.end(), answer.accepted.begin(), answer.accepted.end());
      if (answer.correction) context.push_back(*answer.correction);
      finished = answer.finished;
    }
    EXPECT_TRUE(finished);
    EXPECT_EQ(std::vector<int32_t>(context.begin() + 20, context.end()), plain);
  }
}

TEST(SessionEngine, GrammarsThatCannotGoOnAreRefused) {
  const auto engine = MakeSessions(TestSessionOptions());
  const auto matcher = std::make_shared<Matcher>(RegexGrammar("ab*").value(), &LetterTrie());
  const auto refusal = [&](int answer_start, std::vector<int32_t> context) {
    VerifyCall call = FirstCall("", std::move(context), {});
    call.decode_on_empty = true;
    call.answer_start = answer_start;
    engine->Submit(std::move(call), matcher);
    while (engine->HasWork()) engine->RunStep({});
    return engine->TakeFinished()[0].answer.status().message();
  };
  EXPECT_EQ(refusal(3, {5, 6, 26, 1, 1}), "BAD_GRAMMAR: the 2 tokens of the answer do not match");
  EXPECT_EQ(refusal(6, {5, 6, 26, 1, 1}), "BAD_GRAMMAR: answer_start 6, must be 1 to 5");
  EXPECT_EQ(refusal(2, {5, 6, 26, 1, 1}), "");
  VerifyCall call = FirstCall("", {5, 6}, {});
  call.grammar = {.kind = GrammarSpec::Kind::kRegex, .source = "a"};
  EXPECT_EQ(engine->CompileGrammar(call).status().message(),
            "BAD_GRAMMAR: the target worker's model has no tokenizer");
}

}  // namespace
}  // namespace talon
