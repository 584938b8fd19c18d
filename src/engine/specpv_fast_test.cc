// Fast mode's text against a computation that shares nothing with the engine but the model's file:
// a Llama in plain loops, and the rules of what a partial row sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>

#include "engine/test_engine.h"
#include "model/files/safetensors.h"

namespace talon {
namespace {

constexpr const char* kModel = "tests/data/goldens/llama3";
constexpr int kPrompt = 90;
constexpr int kAnswer = 70;

// By the root's queries, so that rejected drafts have no say in what is read.
SpecPvConfig FastConfig(SpecPvSelector selector) {
  return {.enabled = true,
          .block_size = 8,
          .sink_blocks = 1,
          .retrieval_blocks = 3,
          .window_blocks = 2,
          .buffer_tokens = 40,
          .partial_threshold = 40,
          .full_refresh_interval = 5,
          .mode = SpecPvMode::kFast,
          .selector = selector,
          .reduce = SpecPvReduce::kRoot};
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

// The model of kModel, a token at a time in plain loops.
class PlainLlama {
 public:
  static constexpr int kLayers = 8, kHidden = 64, kFfn = 160, kHeads = 8, kKvHeads = 2,
                       kHeadDim = 8;
  static constexpr int kGroup = kHeads / kKvHeads;
  using Vector = std::vector<double>;

  // What one row leaves, by layer.
  struct Row {
    std::array<std::array<Vector, kHeads>, kLayers> query;
    std::array<std::array<Vector, kKvHeads>, kLayers> key, value;
    int choice = 0;  // the most probable next token
  };
  // The rows that a (layer, kv head) sees, the new one left out.
  using View = std::function<std::vector<const Row*>(int layer, int head)>;

  PlainLlama()
      : file_(SafetensorsReader::OpenDirectory(std::string(TALON_SOURCE_DIR) + "/" + kModel)
                  .value()) {}

  static double Dot(const Vector& a, const Vector& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }

  Row Forward(int32_t token, int position, const View& view) const {
    Row row;
    Vector x = MatrixRow("model.embed_tokens.weight", token);
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string name = fmt::format("model.layers.{}.", layer);
      const Vector normed = Norm(x, name + "input_layernorm.weight");
      row.query[layer] = Rotated<kHeads>(Times(name + "self_attn.q_proj.weight", normed), position);
      row.key[layer] = Rotated<kKvHeads>(Times(name + "self_attn.k_proj.weight", normed), position);
      row.value[layer] = Split<kKvHeads>(Times(name + "self_attn.v_proj.weight", normed));
      Vector attended;
      for (int h = 0; h < kHeads; ++h) {
        auto seen = view(layer, h / kGroup);
        seen.push_back(&row);
        const Vector out = Attend(row.query[layer][h], seen, layer, h / kGroup);
        attended.insert(attended.end(), out.begin(), out.end());
      }
      Add(Times(name + "self_attn.o_proj.weight", attended), &x);
      const Vector mlp_in = Norm(x, name + "post_attention_layernorm.weight");
      Vector gate = Times(name + "mlp.gate_proj.weight", mlp_in);
      const Vector up = Times(name + "mlp.up_proj.weight", mlp_in);
      for (int i = 0; i < kFfn; ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      Add(Times(name + "mlp.down_proj.weight", gate), &x);
    }
    const Vector logits = Times("lm_head.weight", Norm(x, "model.norm.weight"));
    row.choice = static_cast<int>(std::ranges::max_element(logits) - logits.begin());
    return row;
  }

 private:
  std::span<const float> Tensor(const std::string& name) const {
    const TensorView& tensor = *file_.Find(name);
    return {reinterpret_cast<const float*>(tensor.bytes.data()), tensor.bytes.size() / 4};
  }
  Vector MatrixRow(const std::string& name, int row) const {
    const auto values = Tensor(name).subspan(static_cast<size_t>(row) * kHidden, kHidden);
    return {values.begin(), values.end()};
  }
  Vector Times(const std::string& name, const Vector& x) const {
    const auto weights = Tensor(name);
    Vector out(weights.size() / x.size());
    for (size_t i = 0; i < weights.size(); ++i) out[i / x.size()] += weights[i] * x[i % x.size()];
    return out;
  }
  Vector Norm(const Vector& x, const std::string& name) const {
    const auto weights = Tensor(name);
    const double root = std::sqrt(Dot(x, x) / static_cast<double>(x.size()) + 1e-5);
    Vector out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] / root * weights[i];
    return out;
  }
  static void Add(const Vector& a, Vector* x) {
    for (size_t i = 0; i < a.size(); ++i) (*x)[i] += a[i];
  }
  template <size_t kCount>
  static std::array<Vector, kCount> Split(const Vector& x) {
    std::array<Vector, kCount> heads;
    for (size_t h = 0; h < kCount; ++h) {
      heads[h].assign(x.begin() + h * kHeadDim, x.begin() + (h + 1) * kHeadDim);
    }
    return heads;
  }
  // Llama 3's frequencies: long waves are stretched by 8, those in between partly.
  static double Frequency(int pair) {
    const double frequency = std::pow(500000.0, -2.0 * pair / kHeadDim);
    const double turns = 64 * frequency / (2 * std::numbers::pi);  // in the original context
    const double kept = std::clamp((turns - 1) / (4 - 1), 0.0, 1.0);
    return kept * frequency + (1 - kept) * frequency / 8;
  }
  template <size_t kCount>
  static std::array<Vector, kCount> Rotated(const Vector& x, int position) {
    auto heads = Split<kCount>(x);
    for (Vector& head : heads) {
      for (int i = 0; i < kHeadDim / 2; ++i) {
        const double angle = position * Frequency(i), a = head[i], b = head[i + kHeadDim / 2];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[i + kHeadDim / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
    return heads;
  }
  static Vector Attend(const Vector& query, const std::vector<const Row*>& seen, int layer,
                       int head) {
    Vector out(kHeadDim);
    double total = 0;
    for (const Row* row : seen) {
      const double weight = std::exp(Dot(query, row->key[layer][head]) / std::sqrt(kHeadDim));
      for (int d = 0; d < kHeadDim; ++d) out[d] += weight * row->value[layer][head][d];
      total += weight;
    }
    for (double& value : out) value /= total;
    return out;
  }

  SafetensorsReader file_;
};

// Fast mode as src/spec/README.md has it: full passes compute the tokens since the last one anew
// and choose blocks by the root's queries, partial rows see those blocks and each other.
class PlainFast {
 public:
  using Row = PlainLlama::Row;

  explicit PlainFast(const SpecPvConfig& config) : config_(config) {}

  // What each token of the answer should be.
  std::vector<int32_t> Choices(const std::vector<int32_t>& tokens,
                               const std::vector<StepTaken>& steps) {
    ComputeFull(tokens, kPrompt - 1);
    std::vector<int32_t> choices;
    int position = kPrompt - 1;  // the next step's root
    for (const StepTaken& step : steps) {
      if (!step.partial) ComputeFull(tokens, position);
      const int root = position;
      for (int i = 0; i < step.emitted; ++i, ++position) {
        if (step.partial) {
          AddPartial(tokens[position], position);
        } else {
          ComputeFull(tokens, position + 1);
        }
        choices.push_back(step.partial ? partial_.back().choice : full_.back().choice);
      }
      if (!step.partial) ChooseBlocks(root);
    }
    return choices;
  }

 private:
  // Computes rows up to `end` over the whole prefix.
  void ComputeFull(const std::vector<int32_t>& tokens, int end) {
    for (auto p = static_cast<int>(full_.size()); p < end; ++p) {
      const auto whole = [&](int, int) { return Rows(0, p); };
      full_.push_back(model_.Forward(tokens[p], p, whole));
    }
    partial_.clear();
  }

  std::vector<const Row*> Rows(int begin, int end) const {
    std::vector<const Row*> rows;
    for (int p = begin; p < end; ++p) rows.push_back(&full_[p]);
    return rows;
  }

  void AddPartial(int32_t token, int position) {
    const int block = config_.block_size, full_blocks = committed_ / block;
    const BlockBudget budget = config_.Budget();
    const auto view = [&](int layer, int head) {
      auto seen = Rows(0, budget.sink * block);
      for (const int b : chosen_[layer][head]) {
        std::ranges::copy(Rows(b * block, (b + 1) * block), std::back_inserter(seen));
      }
      const auto window = Rows((full_blocks - budget.window) * block, committed_);
      seen.insert(seen.end(), window.begin(), window.end());
      for (const Row& row : partial_) seen.push_back(&row);
      return seen;
    };
    partial_.push_back(model_.Forward(token, position, view));
  }

  // After a full pass whose root is row `root`.
  void ChooseBlocks(int root) {
    const int scored_end = committed_ / config_.block_size;  // when the pass was planned
    committed_ = static_cast<int>(full_.size());
    const BlockBudget budget = config_.Budget();
    for (int layer = 0; layer < PlainLlama::kLayers; ++layer) {
      for (int head = 0; head < PlainLlama::kKvHeads; ++head) {
        const int end = committed_ / config_.block_size - budget.window;
        std::vector<int>& chosen = chosen_[layer][head];
        chosen.resize(std::max(0, end - budget.sink));
        std::iota(chosen.begin(), chosen.end(), budget.sink);
        const auto scores = Scores(full_[root], layer, head, scored_end);
        std::ranges::stable_sort(chosen, std::greater(), [&](int b) {
          return b < scored_end ? scores[b] : std::numeric_limits<double>::infinity();
        });
        chosen.resize(std::min<size_t>(chosen.size(), budget.retrieval));
      }
    }
  }

  std::vector<double> Scores(const Row& root, int layer, int head, int blocks) const {
    std::vector<double> scores(blocks);
    for (int h = head * PlainLlama::kGroup; h < (head + 1) * PlainLlama::kGroup; ++h) {
      const auto& query = root.query[layer][h];
      double total = 0;
      std::vector<double> of_query;
      for (int b = 0; b < blocks; ++b) {
        of_query.push_back(Score(query, layer, head, b));
        total += of_query.back();
      }
      const double unit = config_.selector == SpecPvSelector::kAttention ? total : 1;
      for (int b = 0; b < blocks; ++b) scores[b] += of_query[b] / unit;
    }
    return scores;
  }

  double Score(const PlainLlama::Vector& query, int layer, int head, int block) const {
    const auto rows = Rows(block * config_.block_size, (block + 1) * config_.block_size);
    double mass = 0, norms = 0, bound = 0;
    PlainLlama::Vector largest, smallest;
    for (const Row* row : rows) {
      const auto& key = row->key[layer][head];
      if (largest.empty()) largest = smallest = key;
      for (size_t d = 0; d < key.size(); ++d) {
        largest[d] = std::max(largest[d], key[d]);
        smallest[d] = std::min(smallest[d], key[d]);
      }
      mass += std::exp(PlainLlama::Dot(query, key) / std::sqrt(PlainLlama::kHeadDim));
      norms += std::sqrt(PlainLlama::Dot(key, key));
    }
    for (size_t d = 0; d < query.size(); ++d) {
      bound += std::max(query[d] * largest[d], query[d] * smallest[d]);
    }
    switch (config_.selector) {
      case SpecPvSelector::kAttention:
        return mass;
      case SpecPvSelector::kQuestBound:
        return bound;
      case SpecPvSelector::kH2o:
        return norms;
      default:
        return std::max(PlainLlama::Dot(query, largest), PlainLlama::Dot(query, smallest));
    }
  }

  SpecPvConfig config_;
  PlainLlama model_;
  std::deque<Row> full_;     // as full passes compute them
  std::deque<Row> partial_;  // since the last full pass
  int committed_ = kPrompt - 1;
  std::array<std::array<std::vector<int>, PlainLlama::kKvHeads>, PlainLlama::kLayers> chosen_;
};

class SpecPvFast : public testing::TestWithParam<SpecPvSelector> {};

TEST_P(SpecPvFast, TextIsThatOfAnIndependentComputation) {
  const SpecPvConfig config = FastConfig(GetParam());
  std::vector<StepTaken> plain_steps, steps;
  const auto plain = GenerateFast(Small().MakeEngine(FastOptions({})).get(), &plain_steps);
  if (config.selector == SpecPvSelector::kAttention &&
      !Small().backend->kv_ops()->ScoresByAttention()) {
    // Such a device verifies in full.
    EXPECT_EQ(GenerateFast(Small().MakeEngine(FastOptions(config)).get(), &steps), plain);
    return;
  }
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
    EXPECT_EQ(PlainFast(config).Choices(tokens, steps),
              std::vector<int32_t>(tokens.begin() + kPrompt, tokens.end()))
        << (drafts ? "with drafts" : "without drafts");
    EXPECT_EQ(steps.size() < static_cast<size_t>(kAnswer), drafts);  // some were accepted
    undrafted = tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(Selectors, SpecPvFast,
                         testing::Values(SpecPvSelector::kAttention, SpecPvSelector::kQuest,
                                         SpecPvSelector::kQuestBound, SpecPvSelector::kH2o,
                                         SpecPvSelector::kStreaming, SpecPvSelector::kSliding),
                         [](const auto& info) { return SpecPvSelectorName(info.param); });

}  // namespace
}  // namespace talon
