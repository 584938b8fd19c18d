#include "text/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "text/tokenizer/test_tokenizers.h"
#include "text/unicode.h"

namespace talon {
namespace {

using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

Strings PushAll(StreamDecoder* decoder, const Ids& ids) {
  Strings pieces;
  for (const int32_t id : ids) pieces.push_back(decoder->Push(id));
  pieces.push_back(decoder->Flush());
  return pieces;
}

Ids RandomIds(const Tokenizer& tokenizer, size_t count, std::mt19937* random) {
  Ids ids;
  // A few ids past the end, which must not matter.
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>((*random)() % (tokenizer.vocab_size() + 3)));
  }
  return ids;
}

std::string Joined(const Strings& pieces) {
  std::string text;
  for (const std::string& piece : pieces) {
    EXPECT_FALSE(FindInvalidUtf8(piece)) << "a piece that is not UTF-8";
    text += piece;
  }
  return text;
}

// Each maximal invalid part becomes one U+FFFD.
std::string Lossy(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Utf8Front front = InspectUtf8(bytes);
    text +=
        front.kind == Utf8Front::kComplete ? bytes.substr(0, front.length) : kReplacementCharacter;
    bytes.remove_prefix(front.length);
  }
  return text;
}

TEST(StreamDecoder, BytesWaitForTheirCharacter) {
  const auto tokenizer = ParseTokenizer(ByteLevelJson({}));
  StreamDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(PushAll(&decoder, {'a', 0xE2, 0x82, 0xAC, 'b'}), (Strings{"a", "", "", "€", "b", ""}));
}

TEST(StreamDecoder, InvalidBytesBecomeReplacementCharacters) {
  const auto tokenizer = ParseTokenizer(ByteLevelJson({}));
  StreamDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(PushAll(&decoder, {0xFF, 0xE2, 0x82, 'b', 0xF0, 0x9F}),
            (Strings{"\uFFFD", "", "", "\uFFFDb", "", "", "\uFFFD"}));
}

TEST(StreamDecoder, ByteLevelEqualsTheWholeTextDecodedAtOnce) {
  const auto tokenizer = ParseTokenizer(ByteLevelJson({{"Ã", "©"}, {"â", "Ĥ"}, {"Ġ", "ð"}}));
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const Ids ids = RandomIds(*tokenizer, 1 + random() % 50, &random);
    std::string bytes;
    for (const int32_t id : ids) bytes += tokenizer->TokenBytes(id);
    StreamDecoder decoder(tokenizer.get(), true);
    EXPECT_EQ(Joined(PushAll(&decoder, ids)), Lossy(bytes));
    EXPECT_EQ(tokenizer->Decode(ids, true), Lossy(bytes));
  }
}

TEST(StreamDecoder, ByteFallbackKeepsARunUntilItEnds) {
  const auto tokenizer = ParseTokenizer(SentencePieceJson({"▁", "a"}, {}));
  const auto byte = [](int value) { return 3 + value; };
  const int32_t space = 259;
  const int32_t a = 260;
  StreamDecoder good(tokenizer.get(), true);
  EXPECT_EQ(PushAll(&good, {space, byte(0xC3), byte(0xA9), a, byte('b')}),
            (Strings{"", "", "", "éa", "", "b"}));
  StreamDecoder bad(tokenizer.get(), true);
  EXPECT_EQ(PushAll(&bad, {a, byte(0xC3), byte(0xA9), byte(0xFF), space}),
            (Strings{"a", "", "", "", "\uFFFD\uFFFD\uFFFD ", ""}));
}

// The decoder chain of Llama 2, over all tokens at once.
std::string DecodeLlama(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  std::string run;
  const auto finish_run = [&] {
    if (!FindInvalidUtf8(run)) {
      text += run;
    } else {
      for (size_t i = 0; i < run.size(); ++i) text += kReplacementCharacter;
    }
    run.clear();
  };
  for (const int32_t id : ids) {
    if (!tokenizer.Token(id) || tokenizer.IsSpecial(id)) continue;
    if (id >= 3 && id < 259) {
      run.push_back(static_cast<char>(id - 3));
    } else {
      finish_run();
      text += tokenizer.TokenBytes(id);
    }
  }
  finish_run();
  return text.starts_with(' ') ? text.substr(1) : text;
}

TEST(StreamDecoder, ByteFallbackEqualsTheWholeTextDecodedAtOnce) {
  const auto tokenizer = ParseTokenizer(SentencePieceJson(
      {"▁", "a", "b", "é", "日"}, {{"▁", "▁"}, {"▁", "a"}, {"▁▁", "b"}, {"é", "日"}}));
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    Ids ids = RandomIds(*tokenizer, 1 + random() % 30, &random);
    for (int32_t& id : ids) {
      if (random() % 2 == 0) id = 259 + static_cast<int32_t>(random() % 9);
    }
    StreamDecoder decoder(tokenizer.get(), true);
    EXPECT_EQ(Joined(PushAll(&decoder, ids)), DecodeLlama(*tokenizer, ids));
    EXPECT_EQ(tokenizer->Decode(ids, true), DecodeLlama(*tokenizer, ids));
  }
}

TEST(StreamDecoder, MetaspaceDropsTheFirstSpace) {
  Json json = SentencePieceJson({"▁", "a"}, {{"▁", "a"}});
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  const auto tokenizer = ParseTokenizer(json);
  StreamDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(PushAll(&decoder, {1, 261, 261, 260}), (Strings{"", "a", " a", "a", ""}));
}

// Llama 2's kind: 261 is "▁a".
TEST(StreamDecoder, OnlyTheBeginningOfTheSequenceIsStripped) {
  Json json = SentencePieceJson({"▁", "a"}, {{"▁", "a"}});
  const auto answer = [&json](const Ids& prompt) {
    const auto tokenizer = ParseTokenizer(json);
    StreamDecoder decoder(tokenizer.get(), true);
    decoder.ContinueAfter(prompt);
    return Joined(PushAll(&decoder, {261, 261}));
  };
  EXPECT_EQ(answer({1, 261}), " a a");
  EXPECT_EQ(answer({1, 259}), " a a") << "the prompt's own space was the one that is stripped";
  EXPECT_EQ(answer({3 + 'x'}), " a a") << "a run of bytes ends with the prompt";
  EXPECT_EQ(answer({1}), "a a") << "the prompt has no text";
  EXPECT_EQ(answer({}), "a a");
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  EXPECT_EQ(answer({1, 261}), " a a");
  EXPECT_EQ(answer({1}), "a a");
  json["decoder"] = nullptr;
  EXPECT_EQ(answer({1, 261}), " ▁a ▁a") << "the space between tokens";
}

TEST(StreamDecoder, TheFirstSpaceIsKeptOnRequest) {
  Json json = SentencePieceJson({"▁", "a"}, {{"▁", "a"}});
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  for (const Json& decoder : {Json(json["decoder"]), metaspace}) {
    json["decoder"] = decoder;
    const auto tokenizer = ParseTokenizer(json);
    StreamDecoder kept(tokenizer.get(), true);
    kept.KeepFirstSpace();
    EXPECT_EQ(Joined(PushAll(&kept, {261, 261})), " a a");
  }
}

// The text of an answer is what it adds to the text of its prompt.
TEST(StreamDecoder, PromptAndAnswerMakeTheWholeText) {
  const auto tokenizer =
      ParseTokenizer(SentencePieceJson({"▁", "a", "b"}, {{"▁", "▁"}, {"▁", "a"}, {"▁▁", "b"}}));
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Ids ids(2 + random() % 8);
    for (int32_t& id : ids) id = random() % 4 == 0 ? 1 : 259 + static_cast<int32_t>(random() % 6);
    const auto cut = static_cast<std::ptrdiff_t>(random() % ids.size());
    const Ids prompt(ids.begin(), ids.begin() + cut);
    StreamDecoder decoder(tokenizer.get(), true);
    decoder.ContinueAfter(prompt);
    EXPECT_EQ(tokenizer->Decode(prompt, true) +
                  Joined(PushAll(&decoder, Ids(ids.begin() + cut, ids.end()))),
              tokenizer->Decode(ids, true));
  }
}

TEST(StreamDecoder, WithoutADecoderTokensAreJoinedBySpaces) {
  Json json = ByteLevelJson({});
  json["decoder"] = nullptr;
  const auto tokenizer = ParseTokenizer(json);
  StreamDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(Joined(PushAll(&decoder, {'a', 'b', 'c'})), "a b c");
}

TEST(StreamDecoder, SpecialTokensAreSkippedOnRequest) {
  Json json = ByteLevelJson({});
  json["added_tokens"] =
      Json::array({AddedTokenJson(256, "<|end|>", true), AddedTokenJson(257, "<x>", false)});
  const auto tokenizer = ParseTokenizer(json);
  EXPECT_EQ(tokenizer->Decode(Ids{'a', 256, 257}, true), "a<x>");
  EXPECT_EQ(tokenizer->Decode(Ids{'a', 256, 257}, false), "a<|end|><x>");
}

TEST(StreamDecoder, ACopyIsASnapshot) {
  const auto tokenizer = ParseTokenizer(ByteLevelJson({}));
  StreamDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(decoder.Push(0xE2), "");
  EXPECT_EQ(decoder.Push(0x82), "");
  const StreamDecoder snapshot = decoder;
  EXPECT_EQ(decoder.Push('x'), "\uFFFDx");
  decoder = snapshot;
  EXPECT_EQ(decoder.Push(0xAC), "€");
}

}  // namespace
}  // namespace talon
