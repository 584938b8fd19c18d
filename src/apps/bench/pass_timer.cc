#include "apps/bench/pass_timer.h"

#include <algorithm>
#include <utility>

#include "apps/bench/bench.h"
#include "base/clock.h"
#include "compute/kv/kv_codes.h"
#include "observe/stage_range.h"

namespace talon {
namespace {

// Bushy, as drafters' trees are: eight branches side by side.
TokenTree BushyTree(int nodes) {
  TokenTree tree(0);
  for (int i = 1; i < nodes; ++i) tree.Add(std::max(0, i - 8), i % 100, 1);
  return tree;
}

}  // namespace

Result<std::unique_ptr<PassTimer>> PassTimer::Create(LoadedModel* model,
                                                     const TimerOptions& options) {
  std::unique_ptr<PassTimer> timer(new PassTimer(model));
  const ModelConfig& config = model->target->config();
  const int block = model->engine_options.block_size;
  const KvShape shape{.num_layers = config.num_layers,
                      .kv_heads = config.num_kv_heads,
                      .head_dim = config.head_dim,
                      .block_size = block,
                      .dtype = model->engine_options.kv_dtype,
                      .num_blocks = options.tokens / block + options.sequences,
                      .staging_rows = options.rows,
                      .key_summaries = true};
  TALON_ASSIGN_OR_RETURN(timer->kv_, KvCache::Create(model->backend.get(), shape, &timer->metrics_,
                                                     {.offload = options.offload,
                                                      .tail_regions = options.sequences,
                                                      .tail_rows = options.rows,
                                                      .view_blocks = options.view_blocks}));
  TALON_RETURN_IF_ERROR(timer->FillBlocks());
  return timer;
}

// Zeros would flatter: every block gets random keys and values, the same ones.
Status PassTimer::FillBlocks() {
  const KvView view = kv_->view();
  std::normal_distribution<float> normal;
  const KvShape& shape = view.shape;
  std::vector<float> vector(shape.head_dim);
  const size_t vectors = static_cast<size_t>(shape.kv_heads) * shape.block_size;
  std::vector<uint8_t> bytes(vectors * shape.VectorBytes());
  std::vector<uint8_t> scales(vectors * shape.ScaleBytes());
  for (size_t i = 0; i < vectors; ++i) {
    for (float& element : vector) element = normal(random_);
    uint8_t* to = bytes.data() + i * shape.VectorBytes();
    if (shape.quantised()) {
      QuantiseKv(vector.data(), shape.head_dim, shape.dtype, to, &scales[i]);
      continue;
    }
    for (int d = 0; d < shape.head_dim; ++d) StoreElement(to, shape.dtype, d, vector[d]);
  }
  for (const KvLayer& layer : view.layers) {
    for (const void* array : {layer.k_blocks, layer.v_blocks}) {
      const KvVectors to = BlockVectorsOf(shape, array);
      model_->backend->CopyIn(to.elements, bytes.data(), bytes.size());
      if (!scales.empty()) model_->backend->CopyIn(to.scales, scales.data(), scales.size());
    }
  }
  for (int block = 1; block < shape.num_blocks; ++block) {
    model_->backend->kv_ops()->CopyBlock(view, 0, block, shape.block_size);
  }
  return OkStatus();
}

std::vector<int32_t> PassTimer::RandomLists(const Sequence& sequence, int blocks) {
  const KvShape& shape = kv_->shape();
  std::vector<int32_t> ids;
  std::vector<int32_t> pool = sequence.blocks;
  for (int list = 0; list < shape.num_layers * shape.kv_heads; ++list) {
    std::shuffle(pool.begin(), pool.end(), random_);
    std::sort(pool.begin(), pool.begin() + blocks);
    ids.insert(ids.end(), pool.begin(), pool.begin() + blocks);
  }
  return ids;
}

Result<Sequence*> PassTimer::NewSequence(const PassCase& pass, int index) {
  Sequence& sequence = sequences_.emplace_back(
      Sequence{.id = index, .tokens = std::vector<int32_t>(pass.context + 1, 0)});
  TALON_ASSIGN_OR_RETURN(Reservation reservation, kv_->Reserve(sequence, pass.context));
  kv_->Advance(&sequence, std::move(reservation), pass.context, "prefill");
  return &sequence;
}

Status PassTimer::AddSequence(const PassCase& pass, int index) {
  TALON_ASSIGN_OR_RETURN(Sequence* const sequence, NewSequence(pass, index));
  const TokenTree tree = BushyTree(pass.nodes);
  if (pass.budget == 0) {
    builder_.AddTree(*sequence, tree);
    return OkStatus();
  }
  TALON_RETURN_IF_ERROR(kv_->staging().OpenTail(sequence));
  const KvShape& shape = kv_->shape();
  std::vector<int32_t> ids = RandomLists(*sequence, pass.budget / shape.block_size);
  int lists = shape.num_layers * shape.kv_heads;
  if (pass.copied) {
    TALON_ASSIGN_OR_RETURN(ids, kv_->CopyToView(sequence, ids));
    lists = 1;
  }
  builder_.AddPartialTree(*sequence, tree,
                          {.block_ids = ids, .num_lists = lists, .tokens = pass.budget});
  return OkStatus();
}

Result<double> PassTimer::TimeCopy(const PassCase& pass, int repeats) {
  sequences_.clear();
  sequences_.reserve(1);
  TALON_ASSIGN_OR_RETURN(Sequence* const sequence, NewSequence(pass, 0));
  const std::vector<int32_t> ids = RandomLists(*sequence, pass.budget / kv_->shape().block_size);
  std::vector<double> seconds;
  Status status;
  for (int i = 0; i <= repeats && status.ok(); ++i) {
    const Stopwatch watch;
    status = kv_->CopyToView(sequence, ids).status();
    model_->backend->kv_ops()->JoinCopies();
    model_->backend->Synchronize();
    if (i > 0) seconds.push_back(watch.Seconds());
  }
  kv_->Free(sequence);
  if (!status.ok()) return status;
  return Median(seconds);
}

Result<double> PassTimer::Time(const PassCase& pass, int repeats) {
  builder_.Reset();
  sequences_.clear();
  sequences_.reserve(pass.sequences);
  Status status;
  for (int i = 0; i < pass.sequences && status.ok(); ++i) status = AddSequence(pass, i);
  ForwardOutput output;
  std::vector<int32_t> argmax(builder_.plan().output_rows.size());
  std::vector<double> seconds;
  constexpr int kWarmUps = 3;  // the pass is captured in them
  const KvView kv = pass.copied ? kv_->views() : kv_->view();
  model_->backend->kv_ops()->JoinCopies();
  for (int i = 0; i < kWarmUps + repeats && status.ok(); ++i) {
    const StageRange range(i == 0 ? "first pass" : "pass");  // the first is not a replay
    const Stopwatch watch;
    status = model_->target->Forward(builder_.plan(), kv, &output);
    if (status.ok()) model_->backend->token_ops()->Argmax(output.logits, argmax);
    if (i >= kWarmUps) seconds.push_back(watch.Seconds());
  }
  for (Sequence& sequence : sequences_) kv_->Free(&sequence);
  if (!status.ok()) return status;
  return Median(seconds);
}

}  // namespace talon
