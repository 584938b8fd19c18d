#include "engine/step/late_drafter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace talon {
namespace {

// Notes what it is told, in order.
class NotingDrafter : public Drafter {
 public:
  explicit NotingDrafter(std::string* notes) : notes_(notes) {}
  std::string_view name() const override { return "NOTING"; }
  Status Begin(SequenceId sequence, std::span<const int32_t>) override {
    *notes_ += "begin" + std::to_string(sequence) + " ";
    return OkStatus();
  }
  void Propose(std::span<const DraftRequest>, std::span<TokenTree>) override {
    *notes_ += "propose ";
  }
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override {
    *notes_ += std::to_string(sequence) + ":";
    for (const int32_t token : emitted) *notes_ += std::to_string(token) + ",";
    *notes_ += " ";
  }
  void Rewind(SequenceId sequence, int length) override {
    *notes_ += "rewind" + std::to_string(sequence) + "to" + std::to_string(length) + " ";
  }
  void End(SequenceId sequence) override { *notes_ += "end" + std::to_string(sequence) + " "; }

 private:
  std::string* notes_;
};

class LateDrafterTest : public ::testing::Test {
 protected:
  std::string notes_;
  LateDrafter drafter_{std::make_unique<NotingDrafter>(&notes_)};
};

TEST_F(LateDrafterTest, LearnsWhenTheDeviceIsBusy) {
  drafter_.Observe(1, std::vector<int32_t>{5, 6});
  drafter_.Observe(2, std::vector<int32_t>{7});
  EXPECT_EQ(notes_, "") << "the step does not wait for it";
  drafter_.Learn();
  EXPECT_EQ(notes_, "1:5,6, 2:7, ");
  drafter_.Learn();
  EXPECT_EQ(notes_, "1:5,6, 2:7, ") << "once";
}

TEST_F(LateDrafterTest, KnowsAllBeforeAnythingElse) {
  const auto after_observing = [this](const auto& call) {
    notes_.clear();
    drafter_.Observe(1, std::vector<int32_t>{9});
    call();
    return notes_;
  };
  EXPECT_EQ(after_observing([&] { (void)drafter_.Begin(2, {}); }), "1:9, begin2 ");
  EXPECT_EQ(after_observing([&] { drafter_.Propose({}, {}); }), "1:9, propose ");
  EXPECT_EQ(after_observing([&] { drafter_.Rewind(1, 3); }), "1:9, rewind1to3 ");
  EXPECT_EQ(after_observing([&] { drafter_.End(1); }), "1:9, end1 ");
  EXPECT_EQ(after_observing([&] { (void)drafter_.BeginTrees({}, 1, {}); }), "1:9, ");
  EXPECT_EQ(after_observing([&] { drafter_.Recall(1, {}, 0); }), "1:9, ");
  EXPECT_EQ(after_observing([&] { drafter_.Extend({}, {}); }), "1:9, ");
}

}  // namespace
}  // namespace talon
