// Fast mode's text against a computation that shares nothing with the engine but the model's
// weights: one pass of the reference backend over all tokens, whose mask says what each row sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "compute/reference/reference_backend.h"
#include "engine/test_engine.h"

namespace talon {
namespace {

constexpr const char* kModel = "tests/data/goldens/llama3";
constexpr int kPrompt = 90;
constexpr int kAnswer = 70;

// Sink and window only, so that what a partial step sees follows from positions.
SpecPvConfig SinkAndWindow(SpecPvSelector selector) {
  return {.enabled = true,
          .block_size = 8,
          .sink_blocks = 1,
          .window_blocks = 2,
          .buffer_tokens = 40,
          .partial_threshold = 40,
          .full_refresh_interval = 5,
          .mode = SpecPvMode::kFast,
          .selector = selector};
}

EngineOptions FastOptions(const SpecPvConfig& specpv) {
  EngineOptions options{
      .kv_dtype = DType::kF32, .block_size = 8, .max_length = 200, .max_sequences = 1};
  options.step.budget = {.max_nodes = 12, .max_depth = 6};
  options.step.specpv = specpv;
  return options;
}

GenerateRequest FastRequest() {
  std::mt19937 random(11);
  GenerateRequest request{.prompt = RandomPrompt(random, kPrompt, kVocabulary)};
  request.sampling.max_tokens = kAnswer;
  request.sampling.ignore_eos = true;
  return request;
}

struct StepTaken {
  int emitted = 0;
  bool partial = false;
};

// The request's tokens, prompt included, and the steps that made them.
std::vector<int32_t> GenerateFast(Engine* engine, std::vector<StepTaken>* steps) {
  GenerateRequest request = FastRequest();
  std::vector<int32_t> tokens = request.prompt;
  request.watched = true;
  int64_t partial_passes = 0;
  request.on_update = [&](const RequestUpdate& update) {
    for (const EmittedToken& token : update.tokens) tokens.push_back(token.token);
    steps->push_back({.emitted = static_cast<int>(update.tokens.size()),
                      .partial = update.stats->partial_passes > partial_passes});
    partial_passes = update.stats->partial_passes;
  };
  EXPECT_TRUE(engine->Generate(std::move(request)).ok());
  return tokens;
}

// One row for each token as a full pass computes it, and one more for each position that a partial
// step judged: those see the sink, the window and the block begun after it as they were when the
// last full pass was committed, and the partial rows since.
class ExpectedChoices {
 public:
  ExpectedChoices(const std::vector<int32_t>& tokens, const std::vector<StepTaken>& steps,
                  const SpecPvConfig& config)
      : tokens_(tokens), count_(static_cast<int>(tokens.size()) - 1), config_(config) {
    for (int p = 0; p < count_; ++p) {
      std::vector<int> seen(p + 1);
      std::iota(seen.begin(), seen.end(), 0);
      AddRow(p, seen);
    }
    int position = kPrompt - 1;
    int committed = position;
    for (const StepTaken& step : steps) {
      for (int i = 0; i < step.emitted; ++i, ++position) {
        judged_.push_back(step.partial ? AddPartialRow(position, committed) : position);
      }
      if (!step.partial) {
        committed = position;
        round_.clear();
      }
    }
  }

  // The most probable token after each judged position.
  std::vector<int32_t> Compute() {
    const auto backend = NewReferenceBackend();
    const int rows = static_cast<int>(seen_.size());
    const auto model = Decoder::Load(std::string(TALON_SOURCE_DIR) + "/" + kModel, backend.get(),
                                     {.max_rows = rows, .max_output_rows = rows})
                           .value();
    Metrics metrics;
    const ModelConfig& shape = model->config();
    const auto kv = KvCache::Create(backend.get(),
                                    {.num_layers = shape.num_layers,
                                     .kv_heads = shape.num_kv_heads,
                                     .head_dim = shape.head_dim,
                                     .num_blocks = 1,
                                     .staging_rows = rows},
                                    &metrics)
                        .value();
    ForwardOutput output;
    const Status status = model->Forward(Plan(), kv->view(), &output);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<int32_t> best(rows);
    backend->token_ops()->Argmax(output.logits, best);
    std::vector<int32_t> choices;
    for (const int row : judged_) choices.push_back(best[row]);
    return choices;
  }

 private:
  int AddRow(int position, std::vector<int> seen) {
    positions_.push_back(position);
    seen_.push_back(std::move(seen));
    return static_cast<int>(seen_.size()) - 1;
  }

  int AddPartialRow(int position, int committed) {
    const int block = config_.block_size;
    const int sink = config_.selector == SpecPvSelector::kSliding ? 0 : config_.sink_blocks * block;
    const int window = (committed / block - config_.window_blocks) * block;
    std::vector<int> seen;
    for (int p = 0; p < committed; ++p) {
      if (p < sink || p >= window) seen.push_back(p);
    }
    seen.insert(seen.end(), round_.begin(), round_.end());
    const auto row = static_cast<int>(seen_.size());
    seen.push_back(row);
    round_.push_back(row);
    return AddRow(position, std::move(seen));
  }

  PassPlan Plan() const {
    const auto rows = static_cast<int>(seen_.size());
    PassPlan plan;
    plan.positions.assign(positions_.begin(), positions_.end());
    plan.slots.assign(rows, -1);
    plan.prefix_len.assign(rows, 0);
    plan.sequence_rows = {0, rows};
    plan.block_offsets = {0, 0};
    plan.mask_words = MaskWords(rows);
    plan.ancestors.assign(static_cast<size_t>(rows) * plan.mask_words, 0);
    for (int row = 0; row < rows; ++row) {
      plan.tokens.push_back(tokens_[positions_[row]]);
      plan.output_rows.push_back(row);
      for (const int node : seen_[row]) {
        plan.ancestors[row * plan.mask_words + node / 64] |= uint64_t{1} << (node % 64);
      }
    }
    return plan;
  }

  const std::vector<int32_t>& tokens_;
  int count_;
  SpecPvConfig config_;
  std::vector<int> positions_;          // [rows]
  std::vector<std::vector<int>> seen_;  // [rows] the rows it sees
  std::vector<int> round_;              // partial rows since the last full pass
  std::vector<int> judged_;             // the row that decided each token of the answer
};

class SpecPvFast : public testing::TestWithParam<SpecPvSelector> {};

TEST_P(SpecPvFast, TextIsThatOfAnIndependentComputation) {
  const SpecPvConfig config = SinkAndWindow(GetParam());
  std::vector<StepTaken> plain_steps, steps;
  const auto plain = GenerateFast(Small().MakeEngine(FastOptions({})).get(), &plain_steps);
  std::vector<int32_t> undrafted;
  for (const bool drafts : {false, true}) {
    steps.clear();
    // Drafts that fast mode itself would emit, with errors.
    auto drafter = drafts ? std::make_unique<OracleDrafter>(
                                std::vector<std::vector<int32_t>>{undrafted}, kVocabulary, 0.8, 5)
                          : nullptr;
    const auto engine = Small().MakeEngine(FastOptions(config), std::move(drafter));
    const std::vector<int32_t> tokens = GenerateFast(engine.get(), &steps);
    ASSERT_EQ(tokens.size(), static_cast<size_t>(kPrompt + kAnswer));
    EXPECT_NE(tokens, plain);  // the view matters
    EXPECT_GT(std::ranges::count(steps, true, &StepTaken::partial), 15);
    EXPECT_EQ(ExpectedChoices(tokens, steps, config).Compute(),
              std::vector<int32_t>(tokens.begin() + kPrompt, tokens.end()))
        << (drafts ? "with drafts" : "without drafts");
    EXPECT_EQ(steps.size() < static_cast<size_t>(kAnswer), drafts);  // some were accepted
    undrafted = tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(Selectors, SpecPvFast,
                         testing::Values(SpecPvSelector::kStreaming, SpecPvSelector::kSliding),
                         [](const auto& info) { return SpecPvSelectorName(info.param); });

}  // namespace
}  // namespace talon
