#include "apps/eagle_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "model/heads/eagle_head.h"
#include "model/heads/eagle_sequence.h"
#include "observe/metrics.h"
#include "spec/drafters/heads/eagle_drafter.h"

namespace talon {
namespace {

constexpr int kMaxTopK = 64;
constexpr int kMaxSteps = 64;

class EagleChecker {
 public:
  EagleChecker(const GoldenFile* file, Decoder* target, Backend* backend,
               const HeadCheckOptions& options)
      : file_(file), target_(target), backend_(backend), options_(options) {}

  Result<std::vector<GoldenCase>> Run() {
    TALON_ASSIGN_OR_RETURN(tokens_, ReadHeadTokens(*file_, "sampled"));
    {
      TALON_ASSIGN_OR_RETURN(const auto head,
                             EagleHead::Load(options_.head, *target_, backend_, HeadOptions()));
      config_ = head->config();
      TALON_RETURN_IF_ERROR(CheckFeatures());
      TALON_RETURN_IF_ERROR(CheckPrefill(head.get()));
    }
    if (file_->Has("tree.tokens")) TALON_RETURN_IF_ERROR(CheckTree());
    return std::move(cases_);
  }

 private:
  EagleHead::Options HeadOptions() const {
    return {.weights = options_.weights, .capture_layers = options_.capture_layers};
  }
  int rows() const { return static_cast<int>(tokens_.size()) - 1; }
  std::vector<int64_t> Shape(int cols) const { return {rows(), cols}; }

  Status CheckFeatures() {
    if (file_->Has("capture_layers")) {
      TALON_ASSIGN_OR_RETURN(const auto expected, file_->Ints("capture_layers"));
      cases_.push_back(CompareInts("capture layers", config_.capture_layers, expected, "layers"));
    }
    TALON_ASSIGN_OR_RETURN(
        SingleSequence::Rows got,
        RunTarget(target_, backend_, std::span(tokens_).first(tokens_.size() - 1),
                  config_.capture_layers, options_.kv_dtype));
    features_ = std::move(got.features);
    return Compare("features", "features", config_.features_size(),
                   config_.eagle3 ? features_ : got.hidden);
  }

  Status CheckPrefill(EagleHead* head) {
    TALON_ASSIGN_OR_RETURN(
        EagleSequence sequence,
        EagleSequence::Create(head, backend_,
                              {.max_tokens = rows(), .kv_dtype = KvValueType(options_.kv_dtype)}));
    TALON_ASSIGN_OR_RETURN(const EagleSequence::Rows got,
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

  Status CheckTree() {
    TALON_ASSIGN_OR_RETURN(const DraftBudget budget, ReadBudget());
    Metrics metrics;
    TALON_ASSIGN_OR_RETURN(
        const auto drafter,
        EagleDrafter::Load({.model_path = options_.head,
                            .budget = budget,
                            .capture_layers = options_.capture_layers,
                            .cache = {.max_length = target_->config().max_context,
                                      .kv_dtype = KvValueType(options_.kv_dtype)},
                            .weights = options_.weights},
                           *target_, backend_, &metrics));
    TALON_ASSIGN_OR_RETURN(const Scratch features,
                           UploadRows(backend_, features_, config_.features_size()));
    TALON_ASSIGN_OR_RETURN(const TokenTree tree,
                           DraftTree(drafter.get(), tokens_, features.all, budget));
    return CompareTree(*file_, tree, options_.tolerance * budget.max_depth, &cases_);
  }

  const GoldenFile* file_;
  Decoder* target_;
  Backend* backend_;
  const HeadCheckOptions& options_;
  EagleConfig config_;
  std::vector<int32_t> tokens_;  // the prompt and the sampled token
  std::vector<float> features_;  // [rows, A * Ht], computed
  std::vector<GoldenCase> cases_;
};

}  // namespace

Result<std::vector<GoldenCase>> CheckEagleGolden(Decoder* target, Backend* backend,
                                                 const HeadCheckOptions& options) {
  TALON_ASSIGN_OR_RETURN(const GoldenFile file, GoldenFile::Open(options.golden));
  return EagleChecker(&file, target, backend, options).Run();
}

}  // namespace talon
