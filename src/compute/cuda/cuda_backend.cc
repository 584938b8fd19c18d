#include "compute/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/cuda/attention.h"
#include "compute/cuda/beam_search.h"
#include "compute/cuda/block_scores.h"
#include "compute/cuda/busy_clock.h"
#include "compute/cuda/choose_columns.h"
#include "compute/cuda/cuda_pass.h"
#include "compute/cuda/device_memory.h"
#include "compute/cuda/draw_tokens.h"
#include "compute/cuda/elementwise.h"
#include "compute/cuda/few_rows.h"
#include "compute/cuda/gemm.h"
#include "compute/cuda/kv_ops.h"
#include "compute/cuda/open_device.h"
#include "compute/cuda/read_bandwidth.h"
#include "compute/cuda/tile_copy.h"
#include "compute/cuda/top_k.h"
#include "compute/cuda/weight.h"

namespace talon {
namespace {

using cuda::BusyClock;
using cuda::CudaPass;
using cuda::CudaWeight;
using cuda::DevicePlan;
using cuda::FewIndices;

const DevicePlan& PlanOf(const Pass& pass) { return static_cast<const CudaPass&>(pass).plan(); }

class CudaBackend : public Backend {
 public:
  CudaBackend(const cuda::Device& device, const CudaOptions& options)
      : device_(device),
        options_(options),
        stream_(device.stream),
        gemm_(stream_, options.deterministic),
        uploads_(&stream_) {}
  ~CudaBackend() override { cuda::CloseDevice(device_); }

  std::string name() const override { return "cuda"; }
  std::string description() const override {
    return fmt::format("cuda, {}{}", device_.name, options_.deterministic ? ", deterministic" : "");
  }
  const cuda::Stream& stream() const { return stream_; }

  Result<Buffer> Allocate(size_t bytes) override { return cuda::AllocateDevice(stream_, bytes); }
  Result<Buffer> AllocateOffloaded(size_t bytes) override { return cuda::AllocatePinned(bytes); }
  void CopyIn(void* device, const void* host, size_t bytes) override;
  void CopyOut(void* host, const void* device, size_t bytes) override;
  void Synchronize() override {
    TALON_CUDA_CHECK(cudaStreamSynchronize(stream_.handle));
    waited_ = true;
  }
  void StartClock() override { clock_.Start(); }
  void ClockStage(const char* stage) override { clock_.SetStage(stage); }
  std::vector<DeviceTime> ReadClock() override { return clock_.Read(); }

  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts,
                                             WeightFormat format) override;

  std::unique_ptr<Pass> NewPass(int query_heads) override {
    return std::make_unique<CudaPass>(stream_, query_heads, options_.deterministic);
  }
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override {
    const BusyClock::Batch batch(&clock_);
    auto* cuda_pass = static_cast<CudaPass*>(pass);
    cuda_pass->Load(plan, shape, &uploads_);
    // Here and not in Attention, which a replayed pass does not call.
    attention_.Get(cuda::AttentionScratchBytes(cuda_pass->num_partials(), cuda_pass->query_heads(),
                                               shape.head_dim));
  }
  void Record(Pass* pass, const Pass* second, uint64_t key,
              const std::function<void()>& ops) override {
    const BusyClock::Batch batch(&clock_);
    static_cast<CudaPass*>(pass)->RunRecorded(static_cast<const CudaPass*>(second), key,
                                              generation_, ops);
  }

  void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) override;
  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override;
  void RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) override;
  void MatMul(MatrixView x, const Weight& w, const float* bias, MatrixView out,
              bool accumulate) override;
  void NormMatMul(MatrixView x, const float* norm, float epsilon, const Weight& w,
                  const float* bias, MatrixView out) override;
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const FeedForwardWeights& weights) override;
  void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                  MatrixView angles) override;
  void Rope(MatrixView x, int head_dim, MatrixView angles) override;
  void SwiGlu(MatrixView gate_up, MatrixView out) override;
  void StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv, int layer) override;
  void RotateAndStore(const Pass& pass, const QkvRows& rows, MatrixView angles, const KvView& kv,
                      int layer) override;
  void ProjectQkv(const Pass& pass, const QkvProduct& product, const QkvRows& rows,
                  MatrixView angles, const KvView& kv, int layer) override;
  void Attention(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                 MatrixView out) override;
  void AttentionMatMul(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                       const Weight& w, const float* bias, MatrixView out) override;
  void CommitRows(const KvView& kv, std::span<const int32_t> rows, std::span<const int32_t> slots,
                  int num_layers) override;
  void CopySlots(const KvView& kv, std::span<const int32_t> from,
                 std::span<const int32_t> to) override;
  void CopyBlock(const KvView& kv, int from, int to, int tokens) override;
  void CopyStaged(const KvView& kv, std::span<const int32_t> from,
                  std::span<const int32_t> to) override;
  void CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                 int first) override;
  void JoinCopies() override { copier_.Join(); }
  void SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) override;
  void ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                   MatrixView out) override;
  void ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) override;
  std::span<const int32_t> ChosenColumns() override;
  void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) override;
  void GatherOutputs(const Pass& pass, MatrixView x, MatrixView out) override;
  void GatherFeatures(const Pass& pass, MatrixView x, MatrixView out) override;
  void Argmax(MatrixView x, std::span<int32_t> out) override;
  bool DrawsTokens() const override { return true; }
  void DrawTokens(const Pass& pass, MatrixView logits, std::span<const RowDraw> draws,
                  std::span<int32_t> out) override;
  void TopK(MatrixView x, int k, std::span<TopKEntry> out) override;
  Result<std::unique_ptr<BeamSearch>> NewBeamSearch(const BeamLimits& limits,
                                                    std::span<const int32_t> token_ids) override;
  void RankRoots(BeamSearch* search, std::span<const int32_t> slots, MatrixView logits,
                 MatrixView outputs, MatrixView kept) override;
  void StartBeams(BeamSearch* search, std::span<const BeamRoot> roots) override;
  void LoadBeams(BeamSearch* search, Pass* pass, MatrixView kept, MatrixView inputs) override;
  void ExpandBeams(BeamSearch* search, MatrixView logits, MatrixView outputs,
                   MatrixView kept) override;
  void LoadTrees(BeamSearch* search, Pass* pass, std::span<const TreePlace> places) override;
  std::span<const TopKEntry> ReadBeams(BeamSearch* search) override;

 private:
  // The left operand of a product with `w`: room for it, in w's type and padded as w wants.
  cuda::RowsOut Operand(const CudaWeight& w, int rows, cuda::Scratch* scratch);
  void RunAttention(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                    const cuda::RowsOut& out);
  // RmsNorm(x) as the left operand of a product with `w`.
  cuda::Operand NormedOperand(MatrixView x, const float* norm, float epsilon, const CudaWeight& w);
  // out += x * w^T (+ bias).
  void AddProduct(const cuda::Operand& x, const CudaWeight& w, const float* bias, MatrixView out);
  // Index arrays of a KV op, one behind the other, in device memory until the next upload.
  const int32_t* Upload(std::span<const int32_t> first, std::span<const int32_t> second = {});
  // The cache's layers in device memory.
  const KvLayer* Layers(const KvView& kv);
  void* TopKScratch(MatrixView x, int k);
  template <typename T>
  T* Pinned(size_t count);
  // Copies from the device into pinned memory, and waits.
  template <typename T>
  std::span<const T> Download(const T* device, size_t count);

  struct DeviceLayers {
    std::vector<KvLayer> host;
    Buffer device;
  };

  cuda::Device device_;
  CudaOptions options_;
  cuda::Stream stream_;
  uint64_t generation_ = 0;  // counts the changes of scratch addresses
  BusyClock clock_{&stream_};
  cuda::Gemm gemm_;
  cuda::UploadRing uploads_;
  cuda::Scratch operand_{&stream_, &generation_};
  cuda::Scratch gated_{&stream_, &generation_};
  cuda::Scratch gate_up_{&stream_, &generation_};
  cuda::Scratch attention_{&stream_, &generation_};
  cuda::Scratch indices_{&stream_, &generation_};
  cuda::Scratch draws_{&stream_, &generation_};
  cuda::Scratch best_{&stream_, &generation_};
  cuda::Scratch best_scratch_{&stream_, &generation_};
  cuda::ColumnChooser chooser_{&stream_};
  cuda::TileCopier copier_{&stream_};
  Buffer pinned_;
  bool waited_ = true;  // since something was sent that is read later
  std::map<const KvLayer*, DeviceLayers> layers_;
};

// ---- Memory ----

void CudaBackend::CopyIn(void* device, const void* host, size_t bytes) {
  TALON_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyDefault, stream_.handle));
  Synchronize();
}

void CudaBackend::CopyOut(void* host, const void* device, size_t bytes) {
  TALON_CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDefault, stream_.handle));
  Synchronize();
}

const int32_t* CudaBackend::Upload(std::span<const int32_t> first,
                                   std::span<const int32_t> second) {
  const size_t bytes = (first.size() + second.size()) * sizeof(int32_t);
  auto* host = static_cast<int32_t*>(uploads_.Begin(bytes));
  std::copy(first.begin(), first.end(), host);
  std::copy(second.begin(), second.end(), host + first.size());
  auto* device = indices_.GetAs<int32_t>(first.size() + second.size());
  uploads_.Send(device, bytes);
  return device;
}

const KvLayer* CudaBackend::Layers(const KvView& kv) {
  DeviceLayers& known = layers_[kv.layers.data()];
  const size_t bytes = kv.layers.size_bytes();
  if (known.host.size() != kv.layers.size() ||
      std::memcmp(known.host.data(), kv.layers.data(), bytes) != 0) {
    auto device = Allocate(bytes);
    TALON_CHECK(device.ok(), "{}", device.status().message());
    known.host.assign(kv.layers.begin(), kv.layers.end());
    known.device = std::move(device).value();
    CopyIn(known.device.data(), known.host.data(), bytes);
  }
  return static_cast<const KvLayer*>(known.device.data());
}

template <typename T>
T* CudaBackend::Pinned(size_t count) {
  if (pinned_.bytes() < count * sizeof(T)) {
    auto memory = cuda::AllocatePinned(2 * count * sizeof(T));
    TALON_CHECK(memory.ok(), "{}", memory.status().message());
    pinned_ = std::move(memory).value();
  }
  return static_cast<T*>(pinned_.data());
}

template <typename T>
std::span<const T> CudaBackend::Download(const T* device, size_t count) {
  T* host = Pinned<T>(count);
  CopyOut(host, device, count * sizeof(T));
  return {host, count};
}

// ---- Products ----

Result<std::unique_ptr<Weight>> CudaBackend::PackWeight(std::span<const HostMatrix> parts,
                                                        WeightFormat format) {
  TALON_ASSIGN_OR_RETURN(auto weight, cuda::PackWeight(stream_, parts, format));
  TALON_RETURN_IF_ERROR(gemm_.Reserve(*weight));
  ++generation_;  // what was reserved may have moved
  return std::unique_ptr<Weight>(std::move(weight));
}

cuda::RowsOut CudaBackend::Operand(const CudaWeight& w, int rows, cuda::Scratch* scratch) {
  const DType dtype = w.operand_dtype();
  const int padded = w.padded_cols();
  void* data = scratch->Get(static_cast<size_t>(rows) * padded * DTypeSize(dtype));
  return {data, dtype, padded, w.cols(), padded};
}

cuda::Operand CudaBackend::NormedOperand(MatrixView x, const float* norm, float epsilon,
                                         const CudaWeight& w) {
  TALON_CHECK(x.cols == w.cols());
  const cuda::RowsOut operand = Operand(w, x.rows, &operand_);
  cuda::RmsNorm(stream_, x, norm, epsilon, operand);
  return {operand.data, x.rows, operand.stride};
}

void CudaBackend::AddProduct(const cuda::Operand& x, const CudaWeight& w, const float* bias,
                             MatrixView out) {
  gemm_.Run({.x = x, .w = &w, .bias = bias, .out = out, .accumulate = true});
}

void CudaBackend::MatMul(MatrixView x, const Weight& w, const float* bias, MatrixView out,
                         bool accumulate) {
  const BusyClock::Batch batch(&clock_);
  const auto& weight = static_cast<const CudaWeight&>(w);
  TALON_CHECK(x.cols == weight.cols());
  const cuda::RowsOut operand = Operand(weight, x.rows, &operand_);
  cuda::Convert(stream_, x, operand);
  gemm_.Run({.x = {operand.data, x.rows, operand.stride},
             .w = &weight,
             .bias = bias,
             .out = out,
             .accumulate = accumulate});
}

void CudaBackend::NormMatMul(MatrixView x, const float* norm, float epsilon, const Weight& w,
                             const float* bias, MatrixView out) {
  const auto& weight = static_cast<const CudaWeight&>(w);
  const cuda::Operand operand = NormedOperand(x, norm, epsilon, weight);
  gemm_.Run({.x = operand, .w = &weight, .bias = bias, .out = out});
}

void CudaBackend::FeedForward(MatrixView x, const float* norm, float epsilon,
                              const FeedForwardWeights& weights) {
  const auto& gate_up = static_cast<const CudaWeight&>(*weights.gate_up);
  const auto& down = static_cast<const CudaWeight&>(*weights.down);
  const cuda::Operand normed = NormedOperand(x, norm, epsilon, gate_up);
  const cuda::RowsOut gated = Operand(down, x.rows, &gated_);
  if (!gemm_.RunSwiGlu(normed, gate_up, weights.gate_up_bias, gated)) {
    const int wide = gate_up.rows();
    const MatrixView both{gate_up_.GetAs<float>(static_cast<size_t>(x.rows) * wide), x.rows, wide,
                          wide};
    gemm_.Run({.x = normed, .w = &gate_up, .bias = weights.gate_up_bias, .out = both});
    cuda::SwiGlu(stream_, both, gated);
  }
  AddProduct({gated.data, x.rows, gated.stride}, down, weights.down_bias, x);
}

// ---- Rows ----

void CudaBackend::Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) {
  TALON_CHECK(out.rows == PlanOf(pass).rows);
  cuda::Embed(stream_, PlanOf(pass), table, dtype, out);
}

void CudaBackend::RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(x.rows == out.rows && x.cols == out.cols);
  cuda::RmsNorm(stream_, x, weight, epsilon, cuda::OutOf(out));
}

void CudaBackend::SwiGlu(MatrixView gate_up, MatrixView out) {
  TALON_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
  cuda::SwiGlu(stream_, gate_up, cuda::OutOf(out));
}

void CudaBackend::RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                             MatrixView angles) {
  TALON_CHECK(angles.rows == PlanOf(pass).rows && angles.cols == 2 * half);
  cuda::RopeAngles(stream_, PlanOf(pass), inv_freq, half, scale, angles);
}

void CudaBackend::GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(out.rows == static_cast<int>(rows.size()) && out.cols == x.cols);
  if (rows.empty()) return;
  if (rows.size() <= cuda::kFewRows) {
    cuda::GatherFewRows(stream_, x, FewIndices::Of(rows), out);
  } else {
    cuda::GatherRows(stream_, x, Upload(rows), out);
  }
}

void CudaBackend::GatherOutputs(const Pass& pass, MatrixView x, MatrixView out) {
  TALON_CHECK(out.rows == PlanOf(pass).outputs && out.cols == x.cols);
  cuda::GatherRows(stream_, x, PlanOf(pass).output_rows, out);
}

void CudaBackend::GatherFeatures(const Pass& pass, MatrixView x, MatrixView out) {
  TALON_CHECK(out.rows == PlanOf(pass).features && out.cols == x.cols);
  cuda::GatherRows(stream_, x, PlanOf(pass).feature_rows, out);
}

void CudaBackend::Argmax(MatrixView x, std::span<int32_t> out) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(static_cast<int>(out.size()) == x.rows);
  if (x.rows == 0) return;
  const size_t count = static_cast<size_t>(x.rows) * cuda::kArgmaxParts;
  const std::span<uint64_t> found(Pinned<uint64_t>(count), count);
  cuda::ArgmaxKeys(stream_, x, found.data());  // to host memory
  Synchronize();
  for (int r = 0; r < x.rows; ++r) {
    const auto parts =
        found.subspan(static_cast<size_t>(r) * cuda::kArgmaxParts, cuda::kArgmaxParts);
    out[r] = cuda::IndexOfKey(*std::max_element(parts.begin(), parts.end()));
  }
}

void CudaBackend::DrawTokens(const Pass& pass, MatrixView logits, std::span<const RowDraw> draws,
                             std::span<int32_t> out) {
  const BusyClock::Batch batch(&clock_);
  const auto rows = static_cast<size_t>(logits.rows);
  TALON_CHECK(PlanOf(pass).outputs == logits.rows && draws.size() == rows && out.size() == rows);
  auto* device = draws_.GetAs<RowDraw>(rows);
  std::copy(draws.begin(), draws.end(), static_cast<RowDraw*>(uploads_.Begin(draws.size_bytes())));
  uploads_.Send(device, draws.size_bytes());
  int32_t* const tokens = Pinned<int32_t>(rows);
  cuda::DrawTokens(stream_, PlanOf(pass), logits, device, tokens);
  Synchronize();
  std::copy_n(tokens, rows, out.begin());
}

void CudaBackend::TopK(MatrixView x, int k, std::span<TopKEntry> out) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(k <= x.cols && static_cast<int>(out.size()) == x.rows * k);
  if (out.empty()) return;
  void* scratch = TopKScratch(x, k);
  auto* entries = best_.GetAs<TopKEntry>(out.size());
  cuda::TopK(stream_, x, k, scratch, entries);
  const std::span<const TopKEntry> found = Download(entries, out.size());
  std::copy(found.begin(), found.end(), out.begin());
}

// ---- Drafting ----

Result<std::unique_ptr<BeamSearch>> CudaBackend::NewBeamSearch(const BeamLimits& limits,
                                                               std::span<const int32_t> token_ids) {
  TALON_ASSIGN_OR_RETURN(auto search, cuda::CudaBeamSearch::Create(stream_, limits, token_ids));
  return std::unique_ptr<BeamSearch>(std::move(search));
}

void* CudaBackend::TopKScratch(MatrixView x, int k) {
  return best_scratch_.Get(cuda::TopKScratchBytes(x.rows, x.cols, k));
}

void CudaBackend::RankRoots(BeamSearch* search, std::span<const int32_t> slots, MatrixView logits,
                            MatrixView outputs, MatrixView kept) {
  const BusyClock::Batch batch(&clock_);
  auto* beams = static_cast<cuda::CudaBeamSearch*>(search);
  void* scratch = TopKScratch(logits, beams->width());
  beams->RankRoots(slots, logits, outputs, kept, scratch);
}

void CudaBackend::StartBeams(BeamSearch* search, std::span<const BeamRoot> roots) {
  const BusyClock::Batch batch(&clock_);
  static_cast<cuda::CudaBeamSearch*>(search)->Start(roots);
}

void CudaBackend::LoadBeams(BeamSearch* search, Pass* pass, MatrixView kept, MatrixView inputs) {
  const BusyClock::Batch batch(&clock_);
  static_cast<cuda::CudaBeamSearch*>(search)->Load(PlanOf(*pass), kept, inputs);
}

void CudaBackend::ExpandBeams(BeamSearch* search, MatrixView logits, MatrixView outputs,
                              MatrixView kept) {
  const BusyClock::Batch batch(&clock_);
  auto* beams = static_cast<cuda::CudaBeamSearch*>(search);
  beams->Expand(logits, outputs, kept, TopKScratch(logits, beams->width()));
}

void CudaBackend::LoadTrees(BeamSearch* search, Pass* pass, std::span<const TreePlace> places) {
  const BusyClock::Batch batch(&clock_);
  static_cast<cuda::CudaBeamSearch*>(search)->LoadTrees(PlanOf(*pass), places);
  waited_ = false;
}

std::span<const TopKEntry> CudaBackend::ReadBeams(BeamSearch* search) {
  auto* beams = static_cast<cuda::CudaBeamSearch*>(search);
  if (beams->SendRankings() || !waited_) Synchronize();
  return beams->rankings();
}

// ---- Heads and the KV cache ----

void CudaBackend::RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) {
  TALON_CHECK(x.cols % head_dim == 0);
  cuda::RmsNormHeads(stream_, x, head_dim, weight, epsilon);
}

void CudaBackend::Rope(MatrixView x, int head_dim, MatrixView angles) {
  TALON_CHECK(x.rows == angles.rows && x.cols % head_dim == 0 && angles.cols <= head_dim);
  cuda::Rope(stream_, x, head_dim, angles);
}

void CudaBackend::StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv,
                          int layer) {
  TALON_CHECK(k.rows == PlanOf(pass).rows && v.rows == k.rows);
  TALON_CHECK(k.cols == kv.shape.kv_heads * kv.shape.head_dim && v.cols == k.cols);
  cuda::StoreKv(stream_, PlanOf(pass), k, v, kv.shape, kv.layers[layer]);
}

void CudaBackend::RotateAndStore(const Pass& pass, const QkvRows& rows, MatrixView angles,
                                 const KvView& kv, int layer) {
  TALON_CHECK(rows.k.rows == PlanOf(pass).rows && angles.rows == rows.k.rows);
  cuda::RotateAndStore(stream_, PlanOf(pass), rows, angles, kv.shape, kv.layers[layer]);
}

void CudaBackend::ProjectQkv(const Pass& pass, const QkvProduct& product, const QkvRows& rows,
                             MatrixView angles, const KvView& kv, int layer) {
  const auto& weight = static_cast<const CudaWeight&>(*product.w);
  const bool aligned = product.out.stride % 4 == 0 && angles.stride % 4 == 0;
  if (rows.q_norm != nullptr || rows.k_norm != nullptr || !aligned ||
      !gemm_.StoresHeads(weight, product.x.rows, kv.shape.head_dim, angles.cols)) {
    return Backend::ProjectQkv(pass, product, rows, angles, kv, layer);
  }
  TALON_CHECK(product.x.rows == PlanOf(pass).rows && angles.rows == product.x.rows);
  gemm_.Run({.x = NormedOperand(product.x, product.norm, product.epsilon, weight),
             .w = &weight,
             .bias = product.bias,
             .out = product.out,
             .heads = {.places = PlanOf(pass).places,
                       .angles = angles.data,
                       .angle_stride = angles.stride,
                       .query_heads = rows.q.cols / kv.shape.head_dim,
                       .shape = kv.shape,
                       .layer = kv.layers[layer]}});
}

void CudaBackend::Attention(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                            float scale, MatrixView out) {
  TALON_CHECK(out.rows == q.rows);
  RunAttention(pass, q, kv, layer, scale, cuda::OutOf(out));
}

void CudaBackend::RunAttention(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                               float scale, const cuda::RowsOut& out) {
  const auto& cuda_pass = static_cast<const CudaPass&>(pass);
  const KvShape& shape = kv.shape;
  TALON_CHECK(q.rows == cuda_pass.plan().rows && out.cols == q.cols);
  TALON_CHECK(q.cols % (shape.head_dim * shape.kv_heads) == 0);
  const cuda::AttentionCall call{.plan = cuda_pass.plan(),
                                 .q = q,
                                 .out = out,
                                 .shape = shape,
                                 .layer = kv.layers[layer],
                                 .layer_index = layer,
                                 .scale = scale,
                                 .scratch = attention_.Get(0)};
  cuda::RunAttention(stream_, call);
}

void CudaBackend::AttentionMatMul(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                                  float scale, const Weight& w, const float* bias, MatrixView out) {
  const auto& weight = static_cast<const CudaWeight&>(w);
  const cuda::RowsOut operand = Operand(weight, q.rows, &operand_);
  RunAttention(pass, q, kv, layer, scale, operand);
  AddProduct({operand.data, q.rows, operand.stride}, weight, bias, out);
}

void CudaBackend::CommitRows(const KvView& kv, std::span<const int32_t> rows,
                             std::span<const int32_t> slots, int num_layers) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(rows.size() == slots.size() && num_layers <= kv.shape.num_layers);
  if (rows.empty() || num_layers == 0) return;
  const KvLayer* layers = Layers(kv);
  const auto count = static_cast<int>(rows.size());
  if (rows.size() <= cuda::kFewRows) {
    return cuda::CommitFewRows(stream_, kv.shape, layers, num_layers, FewIndices::Of(rows),
                               FewIndices::Of(slots), count);
  }
  const int32_t* indices = Upload(rows, slots);
  cuda::CommitRows(stream_, kv.shape, layers, num_layers, indices, indices + count, count);
}

void CudaBackend::CopySlots(const KvView& kv, std::span<const int32_t> from,
                            std::span<const int32_t> to) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(from.size() == to.size());
  if (from.empty()) return;
  const KvLayer* layers = Layers(kv);
  const int32_t* indices = Upload(from, to);
  const auto count = static_cast<int>(from.size());
  cuda::CopySlots(stream_, kv.shape, layers, indices, indices + count, count);
}

void CudaBackend::CopyBlock(const KvView& kv, int from, int to, int tokens) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(tokens <= kv.shape.block_size && from != to);
  if (tokens > 0) cuda::CopyBlock(stream_, kv.shape, Layers(kv), from, to, tokens);
}

void CudaBackend::CopyStaged(const KvView& kv, std::span<const int32_t> from,
                             std::span<const int32_t> to) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(from.size() == to.size());
  if (from.empty()) return;
  const KvLayer* layers = Layers(kv);
  const int32_t* indices = Upload(from, to);
  const auto count = static_cast<int>(from.size());
  cuda::CopyStaged(stream_, kv.shape, layers, indices, indices + count, count);
}

void CudaBackend::CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                            int first) {
  copier_.Copy({Layers(from), from.shape}, blocks, {Layers(to), to.shape}, first, &uploads_);
}

void CudaBackend::SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(kv.shape.key_summaries);
  if (blocks.empty()) return;
  const KvLayer* layers = Layers(kv);
  cuda::SummariseBlocks(stream_, kv.shape, layers, Upload(blocks), static_cast<int>(blocks.size()));
}

void CudaBackend::ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                              MatrixView out) {
  const auto& cuda_pass = static_cast<const CudaPass&>(pass);
  TALON_CHECK(kv.shape.key_summaries && q.rows == cuda_pass.plan().rows);
  TALON_CHECK(out.rows == kv.shape.kv_heads && out.cols >= cuda_pass.scored_blocks());
  cuda::ScoreBlocks(stream_, {.plan = cuda_pass.plan(),
                              .q = q,
                              .shape = kv.shape,
                              .layer = kv.layers[layer],
                              .layer_index = layer,
                              .out = out});
}

void CudaBackend::ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) {
  const BusyClock::Batch batch(&clock_);
  chooser_.Choose(x, choices, &uploads_);
  waited_ = false;
}

std::span<const int32_t> CudaBackend::ChosenColumns() {
  if (!waited_) Synchronize();
  return chooser_.chosen();
}

}  // namespace

Result<std::unique_ptr<Backend>> NewCudaBackend(const CudaOptions& options) {
  TALON_ASSIGN_OR_RETURN(const cuda::Device device, cuda::OpenDevice(options.device));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(device, options));
}

Result<double> MeasureCudaReadBandwidth(Backend* backend) {
  auto* device = dynamic_cast<CudaBackend*>(backend);
  if (device == nullptr) {
    return InvalidArgument("the {} backend is not a CUDA device", backend->name());
  }
  return cuda::ReadBandwidth(device->stream());
}

}  // namespace talon
