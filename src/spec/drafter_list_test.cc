#include "spec/drafter_list.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(DrafterListTest, NoneIsPlainDecoding) {
  const auto list = DrafterList::Parse("none");
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(list->none());
  EXPECT_FALSE(list->merged());
  EXPECT_EQ(list->Name(), "NONE");
  EXPECT_EQ(*list, DrafterList());
}

TEST(DrafterListTest, OneDrafter) {
  const auto list = DrafterList::Parse("Prompt_Lookup");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(*list, DrafterKind::kNgram);
  EXPECT_TRUE(list->Has(DrafterKind::kNgram));
  EXPECT_FALSE(list->Has(DrafterKind::kSuffix));
  EXPECT_FALSE(list->none());
  EXPECT_FALSE(list->merged());
}

TEST(DrafterListTest, SeveralKeepTheirOrder) {
  const auto list = DrafterList::Parse("suffix+eagle3,NGRAM");
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(list->merged());
  EXPECT_EQ(list->kinds(), (std::vector<DrafterKind>{DrafterKind::kSuffix, DrafterKind::kEagle3,
                                                     DrafterKind::kNgram}));
  EXPECT_EQ(list->Name(), "SUFFIX,EAGLE3,NGRAM");
}

TEST(DrafterListTest, EveryKnownNameIsParsed) {
  for (const std::string& name : DrafterList::KnownNames()) {
    const auto list = DrafterList::Parse(name);
    ASSERT_TRUE(list.ok()) << list.status().message();
    EXPECT_EQ(list->Name(), name == "MERGED" ? "EAGLE3,SUFFIX" : name);
  }
}

TEST(DrafterListTest, ErrorsNameTheProblem) {
  const auto error_of = [](const char* names) {
    return DrafterList::Parse(names).status().message();
  };
  EXPECT_EQ(error_of("foo"),
            "drafter: 'foo' is unknown; known: DFLASH, DSPARK, EAGLE, EAGLE3, GRAMMAR, JETSPEC, "
            "MERGED, NGRAM, NONE, REMOTE, STANDALONE, SUFFIX");
  EXPECT_TRUE(error_of("NEXTN").starts_with(
      "drafter: 'NEXTN' needs a target whose file holds multi-token prediction layers"));
  EXPECT_EQ(error_of("NGRAM,NONE"), "drafter: 'NONE' cannot be part of a list");
  EXPECT_EQ(error_of("NGRAM,lookup"), "drafter: 'NGRAM' twice in 'NGRAM,lookup'");
  EXPECT_EQ(error_of("EAGLE3,NGRAM,REMOTE,STANDALONE,SUFFIX"),
            "drafter: 5 sources in 'EAGLE3,NGRAM,REMOTE,STANDALONE,SUFFIX', at most 4");
}

}  // namespace
}  // namespace talon
