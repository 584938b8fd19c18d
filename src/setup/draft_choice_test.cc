#include "setup/draft_choice.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "setup/engine_settings.h"
#include "setup/loader.h"

namespace talon {
namespace {

namespace fs = std::filesystem;

const std::string kModels = TALON_SOURCE_DIR "/models/";

std::string Chosen(const Config& config) {
  const auto choice = ChooseDrafters(config);
  return choice.ok() ? choice->drafters.Name() : choice.status().message();
}

struct BudgetCase {
  const char* drafters;
  int steps, top_k, draft_tokens;  // settings, 0 = not given
  DraftBudget expected;
};

TEST(DraftBudget, IsTheMethodsWithWhatIsSet) {
  for (const BudgetCase& c : std::vector<BudgetCase>{
           {"EAGLE3", 0, 0, 0, {.max_nodes = 8, .max_depth = 5, .top_k = 4}},
           {"EAGLE3", 0, 0, 9, {.max_nodes = 9, .max_depth = 5, .top_k = 4}},
           {"EAGLE3", 3, 0, 0, {.max_nodes = 12, .max_depth = 3, .top_k = 4}},
           {"EAGLE3", 3, 2, 9, {.max_nodes = 9, .max_depth = 3, .top_k = 2}},
           {"EAGLE3", 3, 1, 9, {.max_nodes = 4, .max_depth = 3, .top_k = 1}},
           {"STANDALONE", 0, 2, 0, {.max_nodes = 4, .max_depth = 3, .top_k = 2}},
           {"STANDALONE", 6, 0, 0, {.max_nodes = 7, .max_depth = 6, .top_k = 1}},
           {"NGRAM", 3, 0, 0, {.max_nodes = 12, .max_depth = 3, .top_k = 1}},
           {"EAGLE3,SUFFIX", 3, 0, 0, {.max_nodes = 24, .max_depth = 23, .top_k = 4}},
           {"NONE", 3, 2, 9, {.max_nodes = 1, .max_depth = 0, .top_k = 1}},
       }) {
    Config config;
    config.speculative.num_steps = c.steps;
    config.speculative.eagle_topk = c.top_k;
    config.speculative.num_draft_tokens = c.draft_tokens;
    const DraftBudget budget = DraftBudgetOf(config, DrafterList::Parse(c.drafters).value());
    EXPECT_EQ(budget.max_nodes, c.expected.max_nodes) << c.drafters << " " << c.steps;
    EXPECT_EQ(budget.max_depth, c.expected.max_depth) << c.drafters << " " << c.steps;
    EXPECT_EQ(budget.top_k, c.expected.top_k) << c.drafters << " " << c.steps;
  }
}

TEST(DraftChoice, FollowsFromTheOtherSettings) {
  Config config;
  config.speculative.draft_model_path = kModels + "tiny-eagle3";
  EXPECT_EQ(Chosen(config), "EAGLE3,SUFFIX");
  config.speculative.draft_model_path = kModels + "tiny-draft";
  EXPECT_EQ(Chosen(config), "STANDALONE");
  config.remote.target_address = "host:1";
  EXPECT_EQ(Chosen(config), "NONE") << "a draft model does not run beside a remote target";
  config.remote.draft_address = "host:2";
  EXPECT_EQ(Chosen(config), "REMOTE");
  config.speculative.method = "none";
  EXPECT_EQ(Chosen(config), "NONE");
  config = Config();
  config.speculative.draft_model_path = "/no/such";
  EXPECT_EQ(Chosen(config), "draft_model_path: /no/such: no such directory");
}

TEST(DraftChoice, TheBundledModelDraftsWithItsHead) {
  Config config;
  config.model = kModels + "tiny/";
  const auto choice = ChooseDrafters(config);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->drafters.Name(), "EAGLE3,SUFFIX");
  EXPECT_EQ(choice->head, kModels + "tiny-eagle3");
}

TEST(DraftChoice, OnAGpuTheBundledModelDraftsBlocks) {
  Config config;
  config.model = kModels + "tiny";
  config.device = "cuda:1";
  const auto choice = ChooseDrafters(config);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->drafters.Name(), "JETSPEC,SUFFIX");
  EXPECT_EQ(choice->head, kModels + "tiny-block");
  for (const auto& [drafters, head] :
       {std::pair{"JETSPEC", "tiny-block"}, {"MERGED", "tiny-eagle3"}}) {
    const auto list = DrafterList::Parse(drafters);
    EXPECT_EQ(HeadBesideFor(*list, config.model), kModels + head);
    EXPECT_STREQ(BundledDraftModel(*list), head);
  }
  EXPECT_EQ(HeadBesideFor(DrafterKind::kDflash, config.model), "");
}

// A copy of the bundled model by links, with a directory for its head.
class HeadInModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path model = fs::path(::testing::TempDir()) / "head_in_model";
    fs::create_directories(model);
    for (const auto& file : fs::directory_iterator(kModels + "tiny")) {
      fs::create_symlink(fs::absolute(file.path()), model / file.path().filename());
    }
    config_.model = model.string();
    config_.speculative.adaptive = false;
  }
  void TearDown() override { fs::remove_all(config_.model); }

  fs::path Head(const char* name = "eagle3") const { return fs::path(config_.model) / name; }
  // The drafter of an engine for these settings, or why there is none.
  std::string EngineDrafter() {
    auto model = LoadModel(config_);
    if (!model.ok()) return model.status().message();
    (*model)->engine_options.kv_tokens = 64;
    const auto engine = MakeEngine(model->get(), config_, (*model)->drafters);
    return engine.ok() ? (*model)->drafters.Name() : engine.status().message();
  }

  Config config_;
};

TEST_F(HeadInModelTest, IsUsed) {
  EXPECT_EQ(EngineDrafter(), "SUFFIX") << "there is no head yet";
  fs::create_directory_symlink(kModels + "tiny-block", Head("block"));
  EXPECT_EQ(EngineDrafter(), "JETSPEC,SUFFIX");
  fs::create_directory_symlink(kModels + "tiny-eagle3", Head("eagle3"));
  EXPECT_EQ(EngineDrafter(), "EAGLE3,SUFFIX");
  config_.speculative.method = "EAGLE3";
  EXPECT_EQ(EngineDrafter(), "EAGLE3");
}

TEST_F(HeadInModelTest, GivesWayToSuffixIfItDoesNotLoad) {
  fs::create_directories(Head());
  fs::copy_file(kModels + "tiny-eagle3/config.json", Head() / "config.json");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(EngineDrafter(), "SUFFIX");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("drafting with SUFFIX alone"), std::string::npos) << log;
  EXPECT_NE(log.find(Head().string()), std::string::npos) << log;
  fs::remove(Head() / "config.json");
  EXPECT_EQ(EngineDrafter(), "SUFFIX") << "a directory without a head";
  config_.speculative.draft_model_path = Head().string();
  EXPECT_NE(EngineDrafter().find("draft_model_path: "), std::string::npos)
      << "one that the user names is an error";
}

}  // namespace
}  // namespace talon
