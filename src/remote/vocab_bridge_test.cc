#include "remote/vocab_bridge.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "remote/fake_links.h"
#include "remote/orchestrator.h"
#include "text/tokenizer/test_tokenizers.h"

namespace talon {
namespace {

using Tokens = std::vector<int32_t>;

std::unique_ptr<Tokenizer> ByteLevel(const MergeList& merges) {
  return ParseTokenizer(ByteLevelJson(merges));
}

std::unique_ptr<Tokenizer> WithSpecial(const MergeList& merges, const std::string& special) {
  Json json = ByteLevelJson(merges);
  const int id = 256 + static_cast<int>(merges.size());
  json["added_tokens"] = Json::array({AddedTokenJson(id, special, /*special=*/true)});
  return ParseTokenizer(json);
}

TEST(VocabBridge, EqualVocabulariesGiveTheIdentity) {
  const auto a = ByteLevel({{"a", "b"}});
  const auto bridge = VocabBridge::Build(a.get(), ByteLevel({{"a", "b"}}), /*strict=*/true);
  ASSERT_TRUE(bridge.ok()) << bridge.status().message();
  EXPECT_TRUE((*bridge)->identity());
  EXPECT_EQ(*(*bridge)->ContextForDraft(Tokens{1, 256}), (Tokens{1, 256}));
}

TEST(VocabBridge, StrictNamesWhatDiffers) {
  const auto target = ByteLevel({{"a", "b"}, {"c", "d"}});
  const auto sizes = VocabBridge::Build(target.get(), ByteLevel({{"a", "b"}}), /*strict=*/true);
  ASSERT_FALSE(sizes.ok());
  EXPECT_NE(sizes.status().message().find("257"), std::string::npos);
  EXPECT_NE(sizes.status().message().find("258"), std::string::npos);

  const auto one = WithSpecial({{"a", "b"}}, "<end>");
  const auto specials =
      VocabBridge::Build(one.get(), WithSpecial({{"a", "b"}}, "<stop>"), /*strict=*/true);
  ASSERT_FALSE(specials.ok());
  EXPECT_NE(specials.status().message().find("<stop>"), std::string::npos);
}

// Target: ab = 256, cd = 257. Draft: cd = 256, ef = 257, ab = 258.
class VocabBridgeTest : public testing::Test {
 protected:
  VocabBridgeTest() : target_(ByteLevel({{"a", "b"}, {"c", "d"}})), other_(Other()) {
    auto built = VocabBridge::Build(target_.get(), Other(), /*strict=*/false);
    EXPECT_TRUE(built.ok()) << built.status().message();
    bridge_ = std::move(built).value();
  }
  static std::unique_ptr<Tokenizer> Other() {
    return ByteLevel({{"c", "d"}, {"e", "f"}, {"a", "b"}});
  }

  std::unique_ptr<Tokenizer> target_;
  std::unique_ptr<Tokenizer> other_;
  std::unique_ptr<VocabBridge> bridge_;
};

TEST_F(VocabBridgeTest, TokensCorrespondByTheirBytes) {
  EXPECT_FALSE(bridge_->identity());
  EXPECT_EQ(bridge_->ToTarget(256), 257);
  EXPECT_EQ(bridge_->ToTarget(258), 256);
  EXPECT_EQ(bridge_->ToTarget(257), -1);
  EXPECT_EQ(bridge_->ToTarget('a'), 'a');
  EXPECT_EQ(bridge_->ToTarget(100000), -1);
  EXPECT_EQ(bridge_->ToTarget(-5), -1);
  EXPECT_EQ(bridge_->ToDraft(257), 256);
}

TEST_F(VocabBridgeTest, NodesWithoutCounterpartAreCutWithTheirSubtree) {
  // ab - cd; ef - a - b
  const DraftForest drafts{.tokens = {258, 257, 256, 'a', 'b'},
                           .parents = {-1, -1, 0, 1, 3},
                           .probs = {0.6f, 0.3f, 0.5f, 0.4f, 0.2f}};
  const DraftForest out = bridge_->ForTarget(drafts);
  EXPECT_EQ(out.tokens, (Tokens{256, 257}));
  EXPECT_EQ(out.parents, (Tokens{-1, 0}));
  EXPECT_EQ(out.probs, (std::vector<float>{0.6f, 0.5f}));
}

TEST_F(VocabBridgeTest, DrawsAreKeptWhereAllOfThemHaveCounterparts) {
  DraftForest drafts{.tokens = {258, 256}, .parents = {-1, -1}, .probs = {0.5f, 0.5f}};
  drafts.draws.resize(2);
  drafts.draws[0].entries = {{256, 0.5f}, {258, 0.5f}};
  drafts.draws[1].entries = {{256, 0.5f}, {257, 0.5f}};  // ef has none
  const DraftForest out = bridge_->ForTarget(drafts);
  ASSERT_EQ(out.draws.size(), 2u);
  EXPECT_EQ(out.draws[0].Of(257), 0.5f);
  EXPECT_EQ(out.draws[0].Of(256), 0.5f);
  EXPECT_TRUE(out.draws[1].empty());
}

TEST(VocabBridge, SiblingsWithOneCounterpartMerge) {
  // The draft spells "a" in two ways: as a byte and as a character.
  const auto target = ByteLevel({});
  const auto built = VocabBridge::Build(
      target.get(), ParseTokenizer(SentencePieceJson({"a", "b"}, {})), /*strict=*/false);
  ASSERT_TRUE(built.ok());
  const VocabBridge* bridge = built->get();
  const int32_t byte = 3 + 'a';
  const int32_t character = 259;
  ASSERT_EQ(bridge->ToTarget(byte), 'a');
  ASSERT_EQ(bridge->ToTarget(character), 'a');
  DraftForest drafts{.tokens = {byte, character, 260, 3 + 'b'},
                     .parents = {-1, -1, 0, 1},
                     .probs = {0.6f, 0.3f, 0.5f, 0.5f}};
  drafts.draws.resize(4);
  drafts.draws[0].entries = {{byte, 1.0f}};
  const DraftForest out = bridge->ForTarget(drafts);
  EXPECT_EQ(out.tokens, (Tokens{'a', 'b'}));
  EXPECT_EQ(out.parents, (Tokens{-1, 0}));
  EXPECT_TRUE(out.draws[0].empty()) << "two draws are one token: neither holds";
}

TEST_F(VocabBridgeTest, ContextsAreMappedOrEncodedAnew) {
  EXPECT_EQ(*bridge_->ContextForDraft(Tokens{256, 257, 'x'}), (Tokens{258, 256, 'x'}));
  // Seen from the other side: "ef" is unknown to a drafter without that token.
  const auto reverse =
      VocabBridge::Build(other_.get(), ByteLevel({{"a", "b"}, {"c", "d"}}), /*strict=*/false);
  ASSERT_TRUE(reverse.ok());
  EXPECT_EQ(*(*reverse)->ContextForDraft(Tokens{258, 257}), (Tokens{256, 'e', 'f'}));
}

// Drafts in a vocabulary whose bytes begin at 3.
class ShiftedDrafter : public DraftLink {
 public:
  explicit ShiftedDrafter(DraftLink* drafter) : drafter_(drafter) {}
  std::unique_ptr<RunningDraft> Begin(const DraftCall& call,
                                      RemoteClock::time_point deadline) override {
    DraftCall unshifted = call;
    for (int32_t& token : unshifted.context) token -= kShift;
    return std::make_unique<Running>(drafter_->Begin(unshifted, deadline));
  }
  Result<PingAnswer> Ping(RemoteClock::time_point) override { return PingAnswer{}; }

 private:
  static constexpr int32_t kShift = 3;
  struct Running : RunningDraft {
    explicit Running(std::unique_ptr<RunningDraft> inner) : running(std::move(inner)) {}
    bool Ready() override { return running->Ready(); }
    Result<DraftReply> Take() override {
      TALON_ASSIGN_OR_RETURN(DraftReply reply, running->Take());
      for (int32_t& token : reply.answer.drafts.tokens) token += kShift;
      return reply;
    }
    std::unique_ptr<RunningDraft> running;
  };
  DraftLink* drafter_;
};

TEST(VocabBridge, GenerationWithADrafterOfAnotherVocabulary) {
  const auto target_tokens = ByteLevel({});
  auto bridge =
      VocabBridge::Build(target_tokens.get(), ParseTokenizer(SentencePieceJson({"\u00e9"}, {})),
                         /*strict=*/false);
  ASSERT_TRUE(bridge.ok());
  FakeTimer timer;
  FakeTarget target(&timer);
  FakeDrafter drafter(&timer, /*seed=*/7, /*wrong_every=*/4);
  ShiftedDrafter shifted(&drafter);
  const Tokens prompt = {3, 1, 4, 1, 5};
  GenerateRequest request{.prompt = prompt};
  request.sampling = {.temperature = 1, .max_tokens = 60, .seed = 7};
  for (const VocabBridge* used :
       {static_cast<const VocabBridge*>(bridge->get()), static_cast<const VocabBridge*>(nullptr)}) {
    Orchestrator orchestrator(
        {.target = &target, .draft = &shifted, .bridge = used, .timer = &timer}, {});
    const GenerateResult result = orchestrator.Generate(request);
    EXPECT_EQ(result.TokenIds(), FakeText(prompt, 7, 60));
    // Without the bridge the drafts are wrong, and the text is the same.
    if (used != nullptr) {
      EXPECT_GT(result.stats.accepted, 20);
    }
  }
}

}  // namespace
}  // namespace talon
