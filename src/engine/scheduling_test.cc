// Which requests a step computes: fair shares, order of arrival, no starvation.
#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace talon {
namespace {

// Steps an engine and notes at which step each request got its first token, and how many it has.
class Schedule {
 public:
  explicit Schedule(const EngineOptions& options) : engine_(Small().MakeEngine(options)) {}

  int Submit(int prompt_tokens, int max_tokens) {
    const auto index = static_cast<int>(first_token_.size());
    first_token_.push_back(-1);
    tokens_.push_back(0);
    GenerateRequest request;
    for (int i = 0; i < prompt_tokens; ++i) request.prompt.push_back((i * 7 + index) % 250);
    request.sampling = {.max_tokens = max_tokens, .ignore_eos = true};
    request.on_update = [this, index](const RequestUpdate& update) {
      if (first_token_[index] < 0) first_token_[index] = step_;
      tokens_[index] += static_cast<int>(update.tokens.size());
    };
    EXPECT_TRUE(engine_->Submit(std::move(request)).ok());
    return index;
  }
  void Step() {
    ++step_;
    engine_->RunStep();
    EXPECT_TRUE(engine_->CheckIntegrity().ok());
  }
  void RunToEnd() {
    while (engine_->HasWork()) Step();
  }

  int first_token(int index) const { return first_token_[index]; }
  int tokens(int index) const { return tokens_[index]; }
  int step() const { return step_; }

 private:
  std::unique_ptr<Engine> engine_;
  int step_ = 0;
  std::vector<int> first_token_;
  std::vector<int> tokens_;
};

TEST(Scheduling, ShortPromptDoesNotWaitForLongOne) {
  Schedule schedule({.max_sequences = 4, .prefill_chunk = 32});
  const int slow = schedule.Submit(400, 4);
  const int quick = schedule.Submit(12, 4);
  schedule.RunToEnd();
  EXPECT_LE(schedule.first_token(quick), 2);
  EXPECT_GT(schedule.first_token(slow), 400 / 32);
}

TEST(Scheduling, DecodingGoesOnBesidePrompts) {
  Schedule schedule({.max_sequences = 4, .prefill_chunk = 16});
  const int first = schedule.Submit(10, 60);
  schedule.Step();
  schedule.Step();
  const int before = schedule.tokens(first);
  const int long_prompt = schedule.Submit(320, 2);
  for (int i = 0; i < 10; ++i) schedule.Step();
  EXPECT_EQ(schedule.tokens(first), before + 10);
  EXPECT_EQ(schedule.first_token(long_prompt), -1);
  schedule.RunToEnd();
  EXPECT_EQ(schedule.tokens(long_prompt), 2);
}

// A large request behind a pool full of small ones gets its turn before those that came after it.
TEST(Scheduling, ArrivalOrderIsKeptUnderPressure) {
  Schedule schedule({.kv_tokens = 320, .max_sequences = 6, .prefill_chunk = 64});
  for (int i = 0; i < 6; ++i) schedule.Submit(30, 20);
  const int large = schedule.Submit(250, 10);
  std::vector<int> later;
  for (int i = 0; i < 12; ++i) later.push_back(schedule.Submit(8, 5));
  schedule.RunToEnd();
  EXPECT_EQ(schedule.tokens(large), 10);
  for (const int index : later) {
    EXPECT_EQ(schedule.tokens(index), 5);
    // The prompts of those that come after may share the large one's steps, not go before them.
    EXPECT_GT(schedule.first_token(index), schedule.first_token(5));
  }
  EXPECT_LT(schedule.first_token(large), schedule.first_token(later.back()));
}

}  // namespace
}  // namespace talon
