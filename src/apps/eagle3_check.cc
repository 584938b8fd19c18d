#include "apps/eagle3_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "model/heads/eagle3_head.h"
#include "model/heads/eagle3_sequence.h"
#include "model/scratch.h"
#include "model/single_sequence.h"
#include "observe/metrics.h"
#include "spec/drafters/eagle3_drafter.h"

namespace talon {
namespace {

constexpr int kMaxTopK = 64;
constexpr int kMaxSteps = 64;
constexpr int kMaxNodes = 1024;

class Eagle3Checker {
 public:
  Eagle3Checker(const GoldenFile* file, Decoder* target, Backend* backend,
                const Eagle3CheckOptions& options)
      : file_(file), target_(target), backend_(backend), options_(options) {}

  Result<std::vector<GoldenCase>> Run() {
    TALON_RETURN_IF_ERROR(ReadPrompt());
    {
      TALON_ASSIGN_OR_RETURN(const auto head,
                             Eagle3Head::Load(options_.head, *target_, backend_, HeadOptions()));
      config_ = head->config();
      TALON_RETURN_IF_ERROR(CheckFeatures());
      TALON_RETURN_IF_ERROR(CheckPrefill(head.get()));
    }
    if (file_->Has("tree.tokens")) TALON_RETURN_IF_ERROR(CheckTree());
    return std::move(cases_);
  }

 private:
  Eagle3Head::Options HeadOptions() const {
    return {.weights = options_.weights, .capture_layers = options_.capture_layers};
  }
  int rows() const { return static_cast<int>(tokens_.size()) - 1; }
  std::vector<int64_t> Shape(int cols) const { return {rows(), cols}; }

  Status ReadPrompt() {
    TALON_ASSIGN_OR_RETURN(tokens_, file_->Ints("input_ids"));
    TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> sampled, file_->Ints("sampled"));
    if (sampled.size() != 1) {
      return InvalidArgument("{}: tensor sampled has {} tokens, expected 1", file_->path(),
                             sampled.size());
    }
    tokens_.push_back(sampled[0]);
    return OkStatus();
  }

  Status CheckFeatures() {
    if (file_->Has("capture_layers")) {
      TALON_ASSIGN_OR_RETURN(const auto expected, file_->Ints("capture_layers"));
      cases_.push_back(CompareInts("capture layers", config_.capture_layers, expected, "layers"));
    }
    TALON_RETURN_IF_ERROR(target_->SetCaptureLayers(config_.capture_layers));
    TALON_ASSIGN_OR_RETURN(
        SingleSequence sequence,
        SingleSequence::Create(target_, backend_,
                               {.max_tokens = rows(), .kv_dtype = options_.kv_dtype}));
    TALON_ASSIGN_OR_RETURN(SingleSequence::Rows got,
                           sequence.Append(std::span(tokens_).first(tokens_.size() - 1)));
    features_ = std::move(got.features);
    return Compare("features", "features", config_.features_size(), features_);
  }

  Status CheckPrefill(Eagle3Head* head) {
    TALON_ASSIGN_OR_RETURN(
        Eagle3Sequence sequence,
        Eagle3Sequence::Create(head, backend_,
                               {.max_tokens = rows(), .kv_dtype = options_.kv_dtype}));
    TALON_ASSIGN_OR_RETURN(const Eagle3Sequence::Rows got,
                           sequence.Append(features_, std::span(tokens_).subspan(1)));
    TALON_RETURN_IF_ERROR(
        Compare("prefill logits", "prefill.logits", config_.draft_vocab_size, got.logits));
    // With norm_output the file may hold the output before or after the norm: the nearer counts.
    return Compare("prefill hidden", "prefill.hidden", config_.hidden_size, got.hidden, got.next);
  }

  Status Compare(const char* name, const char* tensor, int cols, const std::vector<float>& got,
                 const std::vector<float>& or_this = {}) {
    if (!file_->Has(tensor)) return OkStatus();
    TALON_ASSIGN_OR_RETURN(const auto expected, file_->Floats(tensor, Shape(cols)));
    const bool other =
        !or_this.empty() && MaxAbsError(or_this, expected) < MaxAbsError(got, expected);
    cases_.push_back(CompareFloats(name, other ? or_this : got, expected, options_.tolerance));
    return OkStatus();
  }

  Result<DraftBudget> ReadBudget() const {
    TALON_ASSIGN_OR_RETURN(const auto sizes, file_->Ints("tree.topk_steps_total"));
    const int max_k = std::min(kMaxTopK, config_.draft_vocab_size);
    const bool valid = sizes.size() == 3 && sizes[0] >= 1 && sizes[0] <= max_k && sizes[1] >= 1 &&
                       sizes[1] <= kMaxSteps && sizes[2] >= 1 && sizes[2] < kMaxNodes;
    if (!valid) {
      return InvalidArgument("{}: tree.topk_steps_total is {}, limits {}, {}, {}", file_->path(),
                             fmt::join(sizes, ", "), max_k, kMaxSteps, kMaxNodes - 1);
    }
    return DraftBudget{.max_nodes = sizes[2] + 1, .max_depth = sizes[1], .top_k = sizes[0]};
  }

  // The features as the target's pass would leave them in device memory.
  Result<Scratch> UploadFeatures() {
    const auto cols = static_cast<size_t>(config_.features_size());
    TALON_ASSIGN_OR_RETURN(Scratch scratch, NewScratch(backend_, rows(), config_.features_size()));
    for (int row = 0; row < rows(); ++row) {
      backend_->CopyIn(scratch.all.Rows(row, 1).data,
                       features_.data() + static_cast<size_t>(row) * cols, cols * sizeof(float));
    }
    return scratch;
  }

  Result<TokenTree> Draft(const DraftBudget& budget) {
    Metrics metrics;
    TALON_ASSIGN_OR_RETURN(
        const auto drafter,
        Eagle3Drafter::Load(
            {.model_path = options_.head,
             .budget = budget,
             .capture_layers = options_.capture_layers,
             .cache = {.max_length = target_->config().max_context, .kv_dtype = options_.kv_dtype},
             .weights = options_.weights},
            *target_, backend_, &metrics));
    constexpr SequenceId kSequence = 1;
    TALON_RETURN_IF_ERROR(drafter->Begin(kSequence, std::span(tokens_).first(tokens_.size() - 1)));
    TALON_ASSIGN_OR_RETURN(const Scratch features, UploadFeatures());
    CommittedRows committed{.sequence = kSequence, .tokens = tokens_, .first = 0, .rows = {}};
    committed.rows.resize(static_cast<size_t>(rows()));
    std::iota(committed.rows.begin(), committed.rows.end(), 0);
    drafter->Extend({&committed, 1}, features.all);
    const DraftRequest request{.sequence = kSequence, .tokens = tokens_, .budget = budget};
    TokenTree tree(tokens_.back());
    drafter->Propose({&request, 1}, {&tree, 1});
    return tree;
  }

  Status CheckTree() {
    TALON_ASSIGN_OR_RETURN(const DraftBudget budget, ReadBudget());
    TALON_ASSIGN_OR_RETURN(const TokenTree tree, Draft(budget));
    // The file's trees have no root.
    std::vector<int32_t> tokens(tree.tokens.begin() + 1, tree.tokens.end());
    std::vector<int32_t> parents;
    std::vector<float> scores = {0};
    for (size_t node = 1; node < tree.tokens.size(); ++node) {
      parents.push_back(tree.parents[node] - 1);
      scores.push_back(scores[static_cast<size_t>(tree.parents[node])] +
                       std::log(tree.probs[node]));
    }
    scores.erase(scores.begin());
    TALON_ASSIGN_OR_RETURN(const auto expected_tokens, file_->Ints("tree.tokens"));
    TALON_ASSIGN_OR_RETURN(const auto expected_parents, file_->Ints("tree.parents"));
    cases_.push_back(CompareInts("tree tokens", tokens, expected_tokens, "tokens"));
    cases_.push_back(CompareInts("tree parents", parents, expected_parents, "parents"));
    const bool comparable = file_->Has("tree.scores") && tokens.size() == expected_tokens.size();
    if (!comparable) return OkStatus();
    TALON_ASSIGN_OR_RETURN(
        const auto expected_scores,
        file_->Floats("tree.scores", {static_cast<int64_t>(expected_tokens.size())}));
    cases_.push_back(CompareFloats("tree scores", scores, expected_scores,
                                   options_.tolerance * budget.max_depth));
    return OkStatus();
  }

  const GoldenFile* file_;
  Decoder* target_;
  Backend* backend_;
  const Eagle3CheckOptions& options_;
  Eagle3Config config_;
  std::vector<int32_t> tokens_;  // the prompt and the sampled token
  std::vector<float> features_;  // [rows, A * Ht], computed
  std::vector<GoldenCase> cases_;
};

}  // namespace

Result<std::vector<GoldenCase>> CheckEagle3Golden(Decoder* target, Backend* backend,
                                                  const Eagle3CheckOptions& options) {
  TALON_ASSIGN_OR_RETURN(const GoldenFile file, GoldenFile::Open(options.golden));
  return Eagle3Checker(&file, target, backend, options).Run();
}

}  // namespace talon
