// An engine on a small model for tests, and a drafter that knows the answer.
#ifndef TALON_ENGINE_TEST_ENGINE_H_
#define TALON_ENGINE_TEST_ENGINE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compute/test_device.h"
#include "engine/engine.h"
#include "model/decoder.h"
#include "spec/drafter.h"
#include "spec/policy/policy.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

// Tests run side by side, each best on one core. Data races between threads are for sanitizers.
inline constexpr int kTestThreads = kSanitized ? 2 : 1;

// A model loaded once, engines made from it at will. The bundled one is three times as fast with
// int8 weights as stored.
class TestModel {
 public:
  // `name` is a directory below the repository's root, or an absolute path.
  explicit TestModel(const std::string& name, WeightFormat weights = WeightFormat::kAsStored,
                     int max_rows = 1100, ActivationFormat activations = ActivationFormat::kAuto)
      : backend(NewTestBackend(kTestThreads)) {
    const std::string dir = std::filesystem::path(TALON_SOURCE_DIR) / name;
    auto loaded = Decoder::Load(dir, backend.get(),
                                {.weights = weights,
                                 .activations = activations,
                                 .max_rows = max_rows,
                                 .max_output_rows = 560});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    target = std::move(loaded).value();
    auto text = Tokenizer::Load(dir + "/tokenizer.json");
    if (text.ok()) tokenizer = std::move(text).value();
  }

  std::unique_ptr<Engine> MakeEngine(EngineOptions options,
                                     std::unique_ptr<Drafter> drafter = nullptr,
                                     std::unique_ptr<Policy> policy = nullptr) {
    if (options.max_length == 0) options.max_length = 512;
    auto engine = Engine::Create({.backend = backend.get(),
                                  .target = target.get(),
                                  .tokenizer = tokenizer.get(),
                                  .drafter = std::move(drafter),
                                  .policy = std::move(policy)},
                                 options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(engine).value();
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Decoder> target;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Random weights, small and fast; no tokenizer.
inline constexpr int kVocabulary = 512;
inline TestModel& Small() {
  static TestModel model("tests/data/goldens/llama3");
  return model;
}

// The bundled model.
inline TestModel& Tiny() {
  static TestModel model("models/tiny", WeightFormat::kInt8);
  return model;
}

// The same with weights and activations in FP8.
inline TestModel& TinyFp8() {
  static TestModel model("models/tiny", WeightFormat::kFp8, 1100, ActivationFormat::kFp8);
  return model;
}

// Text as Tiny()'s tokens.
inline std::vector<int32_t> Encode(const std::string& text) {
  return Tiny().tokenizer->Encode(text, true).value();
}

inline std::vector<int32_t> RandomPrompt(std::mt19937& random, int length, int vocabulary) {
  std::vector<int32_t> prompt(length);
  for (int32_t& token : prompt) token = static_cast<int32_t>(random() % vocabulary);
  return prompt;
}

// Grows random trees in which the known continuation of the sequence is present with some
// probability per level, among distractors. So every shape and every accepted length occurs.
class OracleDrafter : public Drafter {
 public:
  // Answers by prompt: prompt + plain output. Unknown prompts get random drafts only.
  OracleDrafter(std::vector<std::vector<int32_t>> answers, int vocabulary, double truth, int seed)
      : answers_(std::move(answers)), vocabulary_(vocabulary), truth_(truth), random_(seed) {}

  std::string_view name() const override { return "ORACLE"; }
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    for (size_t i = 0; i < requests.size(); ++i) trees[i] = Draft(requests[i]);
  }
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override {
    observed_[sequence] += static_cast<int>(emitted.size());
  }
  void Rewind(SequenceId, int) override {}
  void End(SequenceId sequence) override { observed_.erase(sequence); }

 private:
  // The answer that continues these tokens, or null.
  const std::vector<int32_t>* AnswerFor(std::span<const int32_t> tokens) const {
    for (const auto& answer : answers_) {
      if (answer.size() > tokens.size() &&
          std::equal(tokens.begin(), tokens.end(), answer.begin())) {
        return &answer;
      }
    }
    return nullptr;
  }

  TokenTree Draft(const DraftRequest& request) {
    const std::vector<int32_t>* answer = AnswerFor(request.tokens);
    TokenTree tree(request.tokens.back());
    std::vector<int> depth = {0};
    const int wanted = 1 + static_cast<int>(random_() % request.budget.max_nodes);
    int true_tip = 0;  // deepest node on the known continuation
    for (int tries = 0; tree.size() < wanted && tries < 4 * wanted; ++tries) {
      const bool extend_truth = std::uniform_real_distribution<>(0, 1)(random_) < truth_;
      const int parent = extend_truth
                             ? true_tip
                             : static_cast<int>(random_() % static_cast<uint32_t>(tree.size()));
      if (depth[parent] >= request.budget.max_depth) continue;
      const size_t next = request.tokens.size() + depth[parent];
      const bool known =
          answer != nullptr && parent == true_tip && extend_truth && next < answer->size();
      const int32_t token = known ? (*answer)[next] : static_cast<int32_t>(random_() % vocabulary_);
      if (tree.FindChild(parent, token) >= 0) continue;
      const int added = tree.Add(parent, token, 0.5f);
      depth.push_back(depth[parent] + 1);
      if (known) true_tip = added;
    }
    return CanonicalTree(tree);
  }

  std::vector<std::vector<int32_t>> answers_;
  int vocabulary_;
  double truth_;
  std::mt19937 random_;
  std::map<SequenceId, int> observed_;
};

// Random cases, numbered; the same number is the same case.
struct CaseRange {
  int first = 0;
  int end = 0;
  int count() const { return end - first; }
};
// `usual` ones, or what TALON_CASES says: "N", or "FIRST-END" of which END is left out.
inline CaseRange WantedCases(int usual) {
  const char* wanted = std::getenv("TALON_CASES");
  if (wanted == nullptr) return {0, usual};
  const char* dash = std::strchr(wanted, '-');
  return dash == nullptr ? CaseRange{0, std::atoi(wanted)}
                         : CaseRange{std::atoi(wanted), std::atoi(dash + 1)};
}

// Runs all requests as one batch and returns their results in order.
inline std::vector<GenerateResult> RunBatch(Engine* engine, std::vector<GenerateRequest> requests) {
  std::vector<RequestId> ids;
  for (GenerateRequest& request : requests) {
    auto id = engine->Submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.status().message();
    ids.push_back(*id);
  }
  while (engine->HasWork()) {
    engine->RunStep();
    const Status status = engine->CheckIntegrity();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(engine->kv().pool().used_blocks(), 0);
  std::vector<GenerateResult> results;
  for (const RequestId id : ids) results.push_back(std::move(engine->Take(id)).value());
  return results;
}

// The same tokens with the same log-probs and the same end.
inline void ExpectSameBits(const GenerateResult& a, const GenerateResult& b) {
  ASSERT_EQ(a.TokenIds(), b.TokenIds());
  ASSERT_EQ(a.finish, b.finish);
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    ASSERT_EQ(a.tokens[i].log_prob, b.tokens[i].log_prob) << "token " << i;
    ASSERT_EQ(a.tokens[i].top.size(), b.tokens[i].top.size());
    for (size_t j = 0; j < a.tokens[i].top.size(); ++j) {
      ASSERT_EQ(a.tokens[i].top[j].token, b.tokens[i].top[j].token);
      ASSERT_EQ(a.tokens[i].top[j].log_prob, b.tokens[i].top[j].log_prob);
    }
  }
}

}  // namespace talon

#endif  // TALON_ENGINE_TEST_ENGINE_H_
