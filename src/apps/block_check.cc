#include "apps/block_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "model/heads/block_head.h"
#include "model/private_kv.h"
#include "observe/metrics.h"
#include "spec/drafters/heads/block_drafter.h"

namespace talon {
namespace {

constexpr int kMaxWidth = 64;

class BlockChecker {
 public:
  BlockChecker(const GoldenFile* file, Decoder* target, Backend* backend,
               const HeadCheckOptions& options)
      : file_(file), target_(target), backend_(backend), options_(options) {}

  Result<std::vector<GoldenCase>> Run() {
    TALON_ASSIGN_OR_RETURN(tokens_, ReadHeadTokens(*file_, "anchor"));
    TALON_ASSIGN_OR_RETURN(head_, BlockHead::Load(options_.head, *target_, backend_,
                                                  {.weights = options_.weights,
                                                   .max_context_rows = rows(),
                                                   .capture_layers = options_.capture_layers}));
    TALON_RETURN_IF_ERROR(CheckFeatures());
    TALON_RETURN_IF_ERROR(CheckBlock());
    if (file_->Has("tree.tokens")) TALON_RETURN_IF_ERROR(CheckTree());
    return std::move(cases_);
  }

 private:
  const BlockConfig& config() const { return head_->config(); }
  int rows() const { return static_cast<int>(tokens_.size()) - 1; }
  std::span<const int32_t> prompt() const { return std::span(tokens_).first(tokens_.size() - 1); }

  Status Compare(const std::string& name, const std::string& tensor,
                 const std::vector<int64_t>& shape, std::span<const float> got) {
    if (!file_->Has(tensor)) return OkStatus();
    TALON_ASSIGN_OR_RETURN(const auto expected, file_->Floats(tensor, shape));
    cases_.push_back(CompareFloats(name, got, expected, options_.tolerance));
    return OkStatus();
  }

  Status CheckFeatures() {
    TALON_ASSIGN_OR_RETURN(
        const SingleSequence::Rows got,
        RunTarget(target_, backend_, prompt(), config().capture_layers, options_.kv_dtype));
    TALON_ASSIGN_OR_RETURN(features_, UploadRows(backend_, got.features, config().features_size()));
    return Compare("features", "features", {rows(), config().features_size()}, got.features);
  }

  Status CheckBlock() {
    TALON_ASSIGN_OR_RETURN(PrivateKv kv,
                           PrivateKv::Create(backend_, head_->kv_shape(),
                                             {.max_tokens = rows(),
                                              .max_tree = config().block_size,
                                              .kv_dtype = KvValueType(options_.kv_dtype)}));
    TALON_RETURN_IF_ERROR(
        head_->AddContext(kv.PromptPlan(prompt(), rows()), kv.View(), features_.all));
    kv.Advance(prompt().size());
    for (int layer = 0; layer < config().layers.num_layers; ++layer) {
      TALON_RETURN_IF_ERROR(CheckContext(kv.View(), layer));
    }
    TALON_ASSIGN_OR_RETURN(const PassPlan plan, BlockPlan(kv));
    BlockOutput output;
    TALON_RETURN_IF_ERROR(head_->Forward(plan, kv.View(), &output));
    std::vector<float> hidden;
    std::vector<float> logits;
    CopyRows(backend_, output.hidden, &hidden);
    const int drafts = config().num_drafts();
    CopyRows(backend_, output.logits.Rows(config().first_draft_row(), drafts), &logits);
    TALON_RETURN_IF_ERROR(Compare("block hidden", "block.hidden",
                                  {config().block_size, config().layers.hidden_size}, hidden));
    return Compare("block logits", "block.logits", {drafts, config().draft_vocab_size}, logits);
  }

  // A chain whose rows all see each other, unless the head is causal.
  Result<PassPlan> BlockPlan(const PrivateKv& kv) const {
    std::vector<int32_t> tokens(static_cast<size_t>(config().block_size), config().mask_token);
    tokens[0] = tokens_.back();
    std::vector<int32_t> parents;
    for (int32_t i = 0; i < config().block_size; ++i) parents.push_back(i - 1);
    TALON_ASSIGN_OR_RETURN(PassPlan plan, kv.TreePlan(tokens, parents));
    if (!config().causal) std::ranges::fill(plan.ancestors, plan.ancestors.back());
    return plan;
  }

  Status CheckContext(const KvView& kv, int layer) {
    const KvLayer& arrays = kv.layers[static_cast<size_t>(layer)];
    const std::vector<int64_t> shape = {rows(), kv.shape.kv_heads, kv.shape.head_dim};
    for (const bool values : {false, true}) {
      const std::string tensor = fmt::format("context.{}.{}", values ? "v" : "k", layer);
      const std::string name = fmt::format("context {} {}", values ? "v" : "k", layer);
      if (!file_->Has(tensor)) continue;
      TALON_RETURN_IF_ERROR(Compare(
          name, tensor, shape, ReadBlocks(kv.shape, values ? arrays.v_blocks : arrays.k_blocks)));
    }
    return OkStatus();
  }

  // [rows, kv heads, head dim] of a cache whose token t is in slot t.
  std::vector<float> ReadBlocks(const KvShape& shape, const void* blocks) const {
    std::vector<uint8_t> bytes(shape.BlockBytes() * static_cast<size_t>(shape.num_blocks));
    backend_->CopyOut(bytes.data(), blocks, bytes.size());
    std::vector<float> out;
    for (int row = 0; row < rows(); ++row) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        const int64_t tile = int64_t{row / shape.block_size} * shape.kv_heads + head;
        const int64_t first = (tile * shape.block_size + row % shape.block_size) * shape.head_dim;
        for (int i = 0; i < shape.head_dim; ++i) {
          out.push_back(LoadElement(bytes.data(), shape.dtype, first + i));
        }
      }
    }
    return out;
  }

  Status CheckTree() {
    TALON_ASSIGN_OR_RETURN(const auto sizes, file_->Ints("tree.width_nodes"));
    const int max_width = std::min(kMaxWidth, config().draft_vocab_size);
    const bool valid = sizes.size() == 2 && sizes[0] >= 1 && sizes[0] <= max_width &&
                       sizes[1] >= 1 && sizes[1] < kMaxNodes;
    if (!valid) {
      return InvalidArgument("{}: tree.width_nodes is {}, limits {}, {}", file_->path(),
                             fmt::join(sizes, ", "), max_width, kMaxNodes - 1);
    }
    const DraftBudget budget{
        .max_nodes = sizes[1] + 1, .max_depth = config().num_drafts(), .top_k = sizes[0]};
    Metrics metrics;
    TALON_ASSIGN_OR_RETURN(
        const auto drafter,
        BlockDrafter::Load({.model_path = options_.head,
                            .budget = budget,
                            .capture_layers = options_.capture_layers,
                            .cache = {.max_length = target_->config().max_context,
                                      .kv_dtype = KvValueType(options_.kv_dtype)},
                            .weights = options_.weights},
                           *target_, backend_, &metrics));
    TALON_ASSIGN_OR_RETURN(const TokenTree tree,
                           DraftTree(drafter.get(), tokens_, features_.all, budget));
    return CompareTree(*file_, tree, options_.tolerance * budget.max_depth, &cases_);
  }

  const GoldenFile* file_;
  Decoder* target_;
  Backend* backend_;
  const HeadCheckOptions& options_;
  std::unique_ptr<BlockHead> head_;
  std::vector<int32_t> tokens_;  // the prompt and the anchor
  Scratch features_;             // [rows, A * Ht], computed
  std::vector<GoldenCase> cases_;
};

}  // namespace

Result<std::vector<GoldenCase>> CheckBlockGolden(Decoder* target, Backend* backend,
                                                 const HeadCheckOptions& options) {
  TALON_ASSIGN_OR_RETURN(const GoldenFile file, GoldenFile::Open(options.golden));
  return BlockChecker(&file, target, backend, options).Run();
}

}  // namespace talon
