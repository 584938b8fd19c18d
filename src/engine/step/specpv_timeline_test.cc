// The timeline of partial verification, with its own numbers: C = 5000, trees of 60 nodes, a buffer
// of 128, every step accepting 4 drafts.
#include <gtest/gtest.h>

#include <numeric>

#include "base/json.h"
#include "base/log.h"
#include "compute/test_device.h"
#include "engine/step/step.h"
#include "model/decoder.h"
#include "model/test_model.h"

namespace talon {
namespace {

constexpr int kTimelineVocabulary = 96;
constexpr int kNodes = 60;
constexpr int kDepth = 8;

// A model whose attention adds nothing: the next token depends on the last one alone, so a partial
// view decides as a full one does, and any disagreement is the test's own doing.
std::unique_ptr<Decoder> LoadForgetfulModel(Backend* backend) {
  TempDirectory dir;
  Json json = SmallConfig();
  json["max_position_embeddings"] = 8192;
  WriteModel(dir.path(), json, DType::kF32, 3);
  auto tensors = RandomTensors(ParseModelConfig(json, "test").value(), DType::kF32, 3);
  for (OwnedTensor& tensor : tensors) {
    if (tensor.name.find("o_proj") != std::string::npos) {
      std::fill(tensor.bytes.begin(), tensor.bytes.end(), 0);
    }
  }
  EXPECT_TRUE(WriteTensors(dir.path() + "/model.safetensors", tensors).ok());
  auto model = Decoder::Load(dir.path(), backend, {.max_rows = 512, .max_output_rows = 256});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

// Trees of 60 nodes that hold the next four tokens and a wrong fifth.
class FourRightDrafter : public Drafter {
 public:
  std::vector<int32_t> next =
      std::vector<int32_t>(kTimelineVocabulary, -1);  // token -> its successor
  std::vector<int> rewinds;

  std::string_view name() const override { return "FOUR_RIGHT"; }
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    TokenTree& tree = trees[0];
    int tip = 0;
    int32_t token = requests[0].tokens.back();
    for (int depth = 1; depth <= 5; ++depth) {
      token = depth < 5 ? next[token] : (next[token] + 1) % kTimelineVocabulary;
      tip = tree.Add(tip, token, 0.5f);
    }
    const int32_t first = tree.tokens[1];
    for (int32_t filler = 0; tree.size() < requests[0].budget.max_nodes; ++filler) {
      if (filler != first) tree.Add(0, filler, 0.01f);
    }
    tree = CanonicalTree(tree);
  }
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int length) override { rewinds.push_back(length); }
  void End(SequenceId) override {}
};

// Notes the plain steps that each charge of the ledger is for.
class LedgerPolicy : public FixedPolicy {
 public:
  bool drafts = true;
  std::vector<double> charged;

  DraftBudget Budget(const StepShape&, const DraftBudget& limit) override {
    return drafts ? limit : DraftBudget{};
  }

  void Charge(const StepShape&, double seconds, double plain_steps) override {
    EXPECT_GT(seconds, 0);
    charged.push_back(plain_steps);
  }
};

class SpecPvTimeline : public testing::TestWithParam<SpecPvMode> {
 protected:
  SpecPvTimeline() : backend_(NewTestBackend(2)), model_(LoadForgetfulModel(backend_.get())) {
    StepOptions options;
    options.budget = {.max_nodes = kNodes, .max_depth = kDepth};
    options.max_length = 8192;
    options.specpv.enabled = true;
    options.specpv.mode = GetParam();
    EXPECT_TRUE(model_->ReserveScores(512).ok());
    const KvShape shape{.num_layers = 2,
                        .kv_heads = 2,
                        .head_dim = 8,
                        .block_size = 16,
                        .num_blocks = 400,
                        .staging_rows = 128 + kDepth + 1,
                        .key_summaries = true};
    kv_ = KvCache::Create(backend_.get(), shape, &metrics_,
                          {.audit = true, .tail_regions = 1, .tail_rows = 128})
              .value();
    step_ = std::make_unique<Step>(Step::Parts{.backend = backend_.get(),
                                               .target = model_.get(),
                                               .kv = kv_.get(),
                                               .drafter = &drafter_,
                                               .policy = &policy_,
                                               .metrics = &metrics_},
                                   options);
    LearnSuccessors();
    GenerateRequest request;
    for (int i = 0; i < 5001; ++i) request.prompt.push_back(i * 7 % kTimelineVocabulary);
    request.sampling.max_tokens = 1000;
    run_ = std::make_unique<ActiveRequest>(1, std::move(request), std::vector<int32_t>{},
                                           OutputText(nullptr, StopMatcher::Create({}).value()));
    while (run_->prompt_left() > 0) {
      const PromptChunk chunk{run_.get(), std::min(run_->prompt_left(), 256)};
      EXPECT_TRUE(step_->Run({}, {&chunk, 1}).ok());
    }
  }

  // One plain pass over each token.
  void LearnSuccessors() {
    PassBuilder builder;
    std::vector<Sequence> sequences(kTimelineVocabulary);
    for (int token = 0; token < kTimelineVocabulary; ++token) {
      sequences[token].tokens = {token};
      builder.AddTree(sequences[token], TokenTree(token));
    }
    ForwardOutput output;
    ASSERT_TRUE(model_->Forward(builder.plan(), kv_->view(), &output).ok());
    backend_->token_ops()->Argmax(output.logits, drafter_.next);
  }

  // Runs a step and returns how many tokens left the engine.
  int RunStep() {
    const size_t before = run_->result.tokens.size();
    ActiveRequest* run = run_.get();
    EXPECT_TRUE(step_->Run({&run, 1}, {}).ok());
    EXPECT_TRUE(kv_->audit().Check(run_->sequence).ok());
    return static_cast<int>(run_->result.tokens.size() - before);
  }
  // Steps 0 to 14 of the table.
  void RunToStep15() {
    const bool exact = GetParam() == SpecPvMode::kExact;
    EXPECT_EQ(run_->sequence.committed_len, 5000);
    EXPECT_EQ(RunStep(), 5);
    EXPECT_EQ(run_->sequence.committed_len, 5005);
    EXPECT_EQ(Refreshes("init"), 1);
    EXPECT_EQ(run_->partial.lists->visible_tokens, 4269);
    for (int step = 1; step <= 14; ++step) {
      EXPECT_EQ(RunStep(), exact ? 0 : 5) << "step " << step;
      EXPECT_EQ(run_->sequence.committed_len, 5005);
      EXPECT_EQ(run_->sequence.tail_len, 5 * step);
    }
  }
  int64_t Refreshes(const char* reason) { return metrics_.Get(Counter::kSpecPvRefresh, reason); }

  Metrics metrics_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> model_;
  std::unique_ptr<KvCache> kv_;
  FourRightDrafter drafter_;
  LedgerPolicy policy_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<ActiveRequest> run_;
};

TEST_P(SpecPvTimeline, CapacityRefresh) {
  RunToStep15();
  EXPECT_EQ(RunStep(), GetParam() == SpecPvMode::kExact ? 75 : 5);
  EXPECT_EQ(Refreshes("capacity"), 1);
  EXPECT_EQ(run_->sequence.committed_len, 5080);
  EXPECT_EQ(run_->sequence.tail_len, 0);
  EXPECT_EQ(run_->result.tokens.size(), 80u);
  EXPECT_EQ(metrics_.Total(Counter::kSpecPvRolledBackTokens), 0);
  EXPECT_EQ(metrics_.Total(Counter::kSpecPvConfirmedTokens),
            GetParam() == SpecPvMode::kExact ? 70 : 0);
  int32_t token = run_->sequence.tokens[run_->prompt_tokens - 1];
  for (const EmittedToken& emitted : run_->result.tokens) {
    token = drafter_.next[token];
    EXPECT_EQ(emitted.token, token);
  }
}

// The full pass that settles the provisional tokens cannot be staged: it does without its drafts,
// and trunk and root are written directly.
TEST_P(SpecPvTimeline, BusyStagingSettlesWithoutDrafts) {
  RunToStep15();
  ASSERT_TRUE(kv_->staging().Begin(1).ok());  // another pass would be under way
  SetLogLevel(LogLevel::kOff);
  EXPECT_EQ(RunStep(), GetParam() == SpecPvMode::kExact ? 71 : 1);
  SetLogLevel(LogLevel::kWarning);
  EXPECT_EQ(metrics_.Get(Counter::kNworFallback, "busy"), 1);
  EXPECT_EQ(metrics_.Get(Counter::kKvBytesWritten, "tree"),
            static_cast<int64_t>(71 * kv_->shape().BytesPerToken()));
  EXPECT_EQ(run_->sequence.committed_len, 5076);
  EXPECT_EQ(run_->sequence.tail_len, 0);
  EXPECT_EQ(RunStep(), GetParam() == SpecPvMode::kExact ? 0 : 5);  // and on it goes, partially
  EXPECT_EQ(run_->sequence.tail_len, 5);
}

// The full pass that settles the provisional tokens fails in the model: everything is as it was,
// and the next attempt settles them.
TEST_P(SpecPvTimeline, FailedFullPassChangesNothing) {
  RunToStep15();
  const Sequence before = run_->sequence;
  const size_t emitted = run_->result.tokens.size();
  ActiveRequest* run = run_.get();
  const auto expect_unchanged = [&] {
    EXPECT_EQ(run_->sequence.tokens, before.tokens);
    EXPECT_EQ(run_->sequence.blocks, before.blocks);
    EXPECT_EQ(run_->sequence.committed_len, before.committed_len);
    EXPECT_EQ(run_->sequence.tail_first, before.tail_first);
    EXPECT_EQ(run_->sequence.tail_len, before.tail_len);
    EXPECT_EQ(run_->num_generated(), 75);
    EXPECT_EQ(run_->result.tokens.size(), emitted);
    EXPECT_FALSE(run_->finished());
    const Sequence* sequence = &run_->sequence;
    EXPECT_TRUE(kv_->CheckIntegrity({&sequence, 1}).ok());
    EXPECT_TRUE(kv_->staging().is_clear());
  };

  int32_t& provisional = run_->sequence.tokens[5005 + 37];
  provisional = kTimelineVocabulary;  // which the model refuses
  EXPECT_FALSE(step_->Run({&run, 1}, {}).ok());
  provisional = before.tokens[5005 + 37];
  expect_unchanged();

  EXPECT_EQ(RunStep(), GetParam() == SpecPvMode::kExact ? 75 : 5);
  EXPECT_EQ(run_->sequence.committed_len, 5080);
  EXPECT_EQ(run_->sequence.tail_len, 0);
  int32_t token = run_->sequence.tokens[run_->prompt_tokens - 1];
  for (const EmittedToken& emitted_token : run_->result.tokens) {
    token = drafter_.next[token];
    EXPECT_EQ(emitted_token.token, token);
  }
}

// Fast mode judges nothing again, so this is exact mode's alone.
class SpecPvExactTimeline : public SpecPvTimeline {};

// Row 15': as if the partial view had drawn another token at trunk node 37.
TEST_P(SpecPvExactTimeline, RollbackInTheTrunk) {
  RunToStep15();
  int32_t& wrong = run_->sequence.tokens[5005 + 37];
  wrong = (wrong + 1) % kTimelineVocabulary;
  EXPECT_EQ(RunStep(), 37);
  EXPECT_EQ(run_->sequence.committed_len, 5042);
  EXPECT_EQ(run_->sequence.tail_len, 0);
  EXPECT_EQ(run_->sequence.tokens.size(), 5043u);
  EXPECT_EQ(metrics_.Total(Counter::kSpecPvRolledBackTokens), 34);
  EXPECT_EQ(metrics_.Total(Counter::kSpecPvConfirmedTokens), 36);
  EXPECT_EQ(metrics_.Get(Counter::kSpecPvArgmaxDisagreements, "32"), 1);
  EXPECT_EQ(drafter_.rewinds, std::vector<int>{5005 + 1 + 36});
  int32_t token = run_->sequence.tokens[run_->prompt_tokens - 1];
  for (const EmittedToken& emitted : run_->result.tokens) {
    token = drafter_.next[token];
    EXPECT_EQ(emitted.token, token);
  }
  EXPECT_EQ(RunStep(), 0);  // and on it goes, partially
  EXPECT_EQ(run_->sequence.tail_len, 5);
}

// What a drafter that catches up loses is charged; rounds have a balance of their own.
TEST_P(SpecPvExactTimeline, TheLedgerSeesADrafterThatCatchesUp) {
  RunToStep15();
  EXPECT_EQ(RunStep(), 75);
  EXPECT_TRUE(policy_.charged.empty());  // the first drafts need the prompt
  run_->partial.governor.reset();        // in full from here on
  EXPECT_EQ(RunStep(), 5);
  EXPECT_EQ(run_->sequence.tail_len, 0);
  policy_.drafts = false;
  EXPECT_EQ(RunStep(), 1);
  policy_.drafts = true;
  EXPECT_TRUE(policy_.charged.empty());
  EXPECT_EQ(RunStep(), 5);  // the drafter catches up
  EXPECT_EQ(policy_.charged, std::vector<double>{5});
}

INSTANTIATE_TEST_SUITE_P(Modes, SpecPvTimeline,
                         testing::Values(SpecPvMode::kExact, SpecPvMode::kFast),
                         [](const auto& info) { return SpecPvModeName(info.param); });
INSTANTIATE_TEST_SUITE_P(Modes, SpecPvExactTimeline, testing::Values(SpecPvMode::kExact),
                         [](const auto& info) { return SpecPvModeName(info.param); });

}  // namespace
}  // namespace talon
