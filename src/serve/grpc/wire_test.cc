// The wire: every call survives encoding and decoding.
#include "serve/grpc/wire.h"

#include <gtest/gtest.h>
#include <serve/grpc/spec_decoding.pb.h>

#include <functional>

#include "serve/grpc/rpc_status.h"

namespace talon {
namespace {

const WireLimits kLimits = {
    .max_tree_nodes = 8, .max_tree_depth = 4, .max_prompt_tokens = 10, .vocab_size = 100};

// 0 - 1 - 3    and 2: two roots, the first with a chain below it.
DraftForest SomeForest() {
  return {.tokens = {5, 7, 6, 8}, .parents = {-1, 0, -1, 1}, .probs = {0.5f, 0.25f, 0.125f, 1.0f}};
}

VerifyCall SomeVerifyCall() {
  return {.request_id = "r1",
          .session_id = "s1",
          .prompt = {1, 2, 3},
          .delta = {4},
          .expected_prefix = 12,
          .prefix_hash = 0xfedcba9876543210,
          .drafts = SomeForest(),
          .temperature = 0.75f,
          .top_k = 40,
          .top_p = 0.5f,
          .min_p = 0.25f,
          .seed = uint64_t{1} << 63,
          .stop_token_ids = {0, 99},
          .rejection = true,
          .decode_on_empty = true};
}

void ExpectSame(const VerifyCall& a, const VerifyCall& b) {
  EXPECT_EQ(a.request_id, b.request_id);
  EXPECT_EQ(a.session_id, b.session_id);
  EXPECT_EQ(a.prompt, b.prompt);
  EXPECT_EQ(a.delta, b.delta);
  EXPECT_EQ(a.expected_prefix, b.expected_prefix);
  EXPECT_EQ(a.prefix_hash, b.prefix_hash);
  EXPECT_EQ(a.temperature, b.temperature);
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.top_p, b.top_p);
  EXPECT_EQ(a.min_p, b.min_p);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.stop_token_ids, b.stop_token_ids);
  EXPECT_EQ(a.rejection, b.rejection);
  EXPECT_EQ(a.decode_on_empty, b.decode_on_empty);
}

// Depth order: the chain's nodes move behind the second root.
void ExpectSomeForestInDepthOrder(const DraftForest& forest) {
  EXPECT_EQ(forest.tokens, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(forest.parents, (std::vector<int32_t>{-1, -1, 0, 2}));
  ASSERT_EQ(forest.probs.size(), 4u);
  EXPECT_FLOAT_EQ(forest.probs[1], 0.125f);
  EXPECT_FLOAT_EQ(forest.probs[2], 0.25f);
}

TEST(WireTest, VerifyCallsSurviveInBothForms) {
  for (const TreeForm form : {TreeForm::kFlat, TreeForm::kNested}) {
    const VerifyCall call = SomeVerifyCall();
    const auto read = DecodeVerifyCall(EncodeVerifyCall(call, form), kLimits);
    ASSERT_TRUE(read.ok()) << read.status().message();
    ExpectSame(*read, call);
    ExpectSomeForestInDepthOrder(read->drafts);
    EXPECT_TRUE(read->drafts.draws.empty());
  }
}

TEST(WireTest, DefaultsSurvive) {
  const auto read = DecodeVerifyCall(EncodeVerifyCall(VerifyCall{}), kLimits);
  ASSERT_TRUE(read.ok());
  ExpectSame(*read, VerifyCall{});
  EXPECT_TRUE(read->drafts.empty());
  const auto draft = DecodeDraftCall(EncodeDraftCall(DraftCall{}), kLimits);
  ASSERT_TRUE(draft.ok());
  EXPECT_FALSE(draft->temperature.has_value());
}

// Flat trees have no place for them.
TEST(WireTest, GrammarsSurvive) {
  const GrammarPart tool = GrammarPart::Sequence(
      {GrammarPart::Text({"<a>", "<b>"}, "{"), GrammarPart::Marker("<tool>"),
       GrammarPart::Repeat(GrammarPart::Choice({GrammarPart::Literal("x"),
                                                {.kind = GrammarPart::Kind::kSchema,
                                                 .text = "{}",
                                                 .name = "find",
                                                 .lenient = true}}))});
  for (const GrammarSpec& grammar :
       {GrammarSpec{.kind = GrammarSpec::Kind::kJsonObject, .spacing = JsonSpacing::kCompact},
        GrammarSpec{.kind = GrammarSpec::Kind::kJsonSchema, .source = "{}"},
        GrammarSpec{.kind = GrammarSpec::Kind::kChoice, .choices = {"a", "b"}},
        GrammarSpec{.kind = GrammarSpec::Kind::kParts, .part = tool}}) {
    VerifyCall call = SomeVerifyCall();
    call.grammar = grammar;
    call.answer_start = 3;
    const auto decoded = DecodeVerifyCall(EncodeVerifyCall(call, TreeForm::kFlat), kLimits);
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(decoded->grammar, grammar);
    EXPECT_EQ(decoded->answer_start, 3);
  }
}

TEST(WireTest, BadGrammars) {
  const auto refusal = [](const std::function<void(specsplit::Grammar*)>& spoil) {
    specsplit::VerifyRequest message;
    message.add_prompt_token_ids(1);
    message.mutable_grammar()->set_kind("regex");
    spoil(message.mutable_grammar());
    return DecodeVerifyCall(message.SerializeAsString(), kLimits).status().message();
  };
  EXPECT_EQ(refusal([](auto*) {}), "");
  EXPECT_EQ(refusal([](auto* grammar) { grammar->set_kind("yaml"); }),
            "BAD_GRAMMAR: kind 'yaml' is not known");
  EXPECT_EQ(refusal([](auto* grammar) {
              grammar->set_kind("parts");
              grammar->mutable_part()->set_kind("repeat");
            }),
            "BAD_GRAMMAR: 'repeat' with 0 parts");
  EXPECT_EQ(refusal([](auto* grammar) { grammar->set_source(std::string(1 << 18, 'a')); }),
            "BAD_GRAMMAR: 262155 bytes, limit 262144");
}

TEST(WireTest, DrawsTravelNested) {
  VerifyCall call = SomeVerifyCall();
  call.drafts.draws.resize(4);
  call.drafts.draws[1].entries = {{3, 0.25f}, {7, 0.75f}};
  const std::string bytes = EncodeVerifyCall(call, TreeForm::kFlat);
  specsplit::VerifyRequest message;
  ASSERT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(message.draft_tree_size(), 2);
  const auto read = DecodeVerifyCall(bytes, kLimits);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->drafts.draws.size(), 4u);
  EXPECT_TRUE(read->drafts.draws[0].empty());
  EXPECT_EQ(read->drafts.draws[2].entries, call.drafts.draws[1].entries);
}

// A client that does not say how drafts are judged: by rejection where they say what they were
// drawn from and something is drawn.
TEST(WireTest, DrawsAreJudgedByRejection) {
  for (const bool draws : {false, true}) {
    for (const float temperature : {0.0f, 0.5f}) {
      specsplit::VerifyRequest message;
      message.set_temperature(temperature);
      specsplit::TokenNode* node = message.add_draft_tree();
      node->set_token_id(1);
      if (draws) {
        node->add_top_k_token_ids(1);
        node->add_top_k_probs(1);
      }
      for (const char* acceptance : {"", "match", "rejection"}) {
        message.set_acceptance(acceptance);
        const auto call = DecodeVerifyCall(message.SerializeAsString(), kLimits);
        ASSERT_TRUE(call.ok()) << call.status().message();
        const bool said = std::string_view(acceptance) == "rejection";
        const bool drawn = std::string_view(acceptance).empty() && draws && temperature > 0;
        EXPECT_EQ(call->rejection, said || drawn) << acceptance << draws << temperature;
      }
    }
  }
}

TEST(WireTest, VerifyAnswersSurvive) {
  const VerifyAnswer answer = {.request_id = "r",
                               .session_id = "s",
                               .accepted = {3, 4},
                               .correction = 0,
                               .cache_hit = true,
                               .prefix_length = 12,
                               .finished = true,
                               .model_seconds = 0.25,
                               .rows = 7};
  WorkerSpan span;
  const auto read = DecodeVerifyAnswer(
      EncodeVerifyAnswer(answer, {.id = "w", .wall_seconds = 0.5, .device = "cpu"}), kLimits,
      &span);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->request_id, "r");
  EXPECT_EQ(read->session_id, "s");
  EXPECT_EQ(read->accepted, answer.accepted);
  EXPECT_EQ(read->correction, std::optional<int32_t>(0));  // token 0 is a token
  EXPECT_TRUE(read->cache_hit);
  EXPECT_EQ(read->prefix_length, 12);
  EXPECT_TRUE(read->finished);
  EXPECT_DOUBLE_EQ(read->model_seconds, 0.25);
  EXPECT_EQ(read->rows, 7);
  EXPECT_EQ(span.id, "w");
  EXPECT_DOUBLE_EQ(span.wall_seconds, 0.5);
  EXPECT_EQ(span.device, "cpu");
  const auto without = DecodeVerifyAnswer(EncodeVerifyAnswer({}, {}), kLimits, nullptr);
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE(without->correction.has_value());
}

TEST(WireTest, AnswersOfAWorkerAreCheckedToo) {
  specsplit::VerifyResponse message;
  message.add_accepted_token_ids(1);
  EXPECT_FALSE(DecodeVerifyAnswer(message.SerializeAsString(), kLimits, nullptr).ok());
  message.set_num_accepted(1);
  EXPECT_TRUE(DecodeVerifyAnswer(message.SerializeAsString(), kLimits, nullptr).ok());
  message.set_has_correction(true);
  message.set_correction_token_id(100);
  const auto answer = DecodeVerifyAnswer(message.SerializeAsString(), kLimits, nullptr);
  EXPECT_EQ(StatusDetail(answer.status()), "TOKEN_OUT_OF_RANGE");
}

TEST(WireTest, DraftCallsAndAnswersSurvive) {
  const DraftCall call = {.request_id = "r",
                          .session_id = "s",
                          .context = {1, 2},
                          .max_length = 5,
                          .num_beams = 3,
                          .max_nodes = 8,
                          .temperature = 0.0f,
                          .seed = 9,
                          .reset_cache = true};
  const auto read = DecodeDraftCall(EncodeDraftCall(call), kLimits);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->session_id, "s");
  EXPECT_EQ(read->context, call.context);
  EXPECT_EQ(read->max_length, 5);
  EXPECT_EQ(read->num_beams, 3);
  EXPECT_EQ(read->max_nodes, 8);
  EXPECT_EQ(read->temperature, std::optional<float>(0.0f));
  EXPECT_EQ(read->seed, 9u);
  EXPECT_TRUE(read->reset_cache);
  const auto seed_of = [](const DraftCall& sent) {
    return DecodeDraftCall(EncodeDraftCall(sent), kLimits)->seed;
  };
  EXPECT_FALSE(seed_of({.context = {1}}).has_value());
  EXPECT_EQ(seed_of({.context = {1}, .seed = 0}), std::optional<uint64_t>(0));

  const DraftAnswer answer = {
      .request_id = "r", .drafts = SomeForest(), .model_seconds = 0.125, .rows = 3};
  for (const TreeForm form : {TreeForm::kFlat, TreeForm::kNested}) {
    const auto back = DecodeDraftAnswer(EncodeDraftAnswer(answer, form, {}), kLimits, nullptr);
    ASSERT_TRUE(back.ok()) << back.status().message();
    ExpectSomeForestInDepthOrder(back->drafts);
    EXPECT_DOUBLE_EQ(back->model_seconds, 0.125);
    EXPECT_EQ(back->rows, 3);
  }
}

// A client that knows fields below 16 only must find its drafts in them.
TEST(WireTest, SpecSplitClientsAreAnsweredNested) {
  DraftCall call;
  EXPECT_EQ(AnswerForm(call), TreeForm::kNested);
  call.max_nodes = 8;
  EXPECT_EQ(AnswerForm(call), TreeForm::kFlat);
}

TEST(WireTest, SmallMessagesSurvive) {
  EXPECT_EQ(*DecodeEndSessionCall(EncodeEndSessionCall("s")), "s");
  const auto ended = DecodeEndSessionAnswer(EncodeEndSessionAnswer({"s", true}));
  EXPECT_TRUE(ended.ok() && ended->session_id == "s" && ended->was_active);
  const auto ping = DecodePingAnswer(EncodePingAnswer({"SERVING", "target", "tiny", 100}));
  ASSERT_TRUE(ping.ok());
  EXPECT_EQ(ping->status, "SERVING");
  EXPECT_EQ(ping->worker_type, "target");
  EXPECT_EQ(ping->model_name, "tiny");
  EXPECT_EQ(ping->vocab_size, 100);
  EXPECT_TRUE(EncodePingCall().empty());
}

TEST(WireTest, GarbageIsAnError) {
  const std::string group = {0x0b, 0x0b};
  const std::string endless(20, '\xff');
  const std::string cut = {0x0a, 0x05, 'a'};
  for (const std::string& bytes : {group, endless, cut, std::string(1, '\0')}) {
    EXPECT_FALSE(DecodeVerifyCall(bytes, kLimits).ok());
    EXPECT_FALSE(DecodeDraftCall(bytes, kLimits).ok());
    EXPECT_FALSE(DecodePingAnswer(bytes).ok());
  }
  const std::string bytes = EncodeVerifyCall(SomeVerifyCall());
  for (size_t i = 0; i < bytes.size(); ++i) {  // no prefix of a message reads past its end
    (void)DecodeVerifyCall(std::string_view(bytes).substr(0, i), kLimits).ok();
  }
}

// A few unknown fields mean a newer client; many are an attack on memory.
}  // namespace
}  // namespace talon
