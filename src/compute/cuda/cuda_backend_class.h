// The class behind cuda_backend.h. Its ops are in cuda_backend_layers.cc (what a pass runs),
// cuda_backend_kv.cc (the cache outside of attention) and cuda_backend_tokens.cc (what becomes of
// logits); memory, passes and their recordings are in cuda_backend.cc.
#ifndef TALON_COMPUTE_CUDA_CUDA_BACKEND_CLASS_H_
#define TALON_COMPUTE_CUDA_CUDA_BACKEND_CLASS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/cuda/cuda_backend.h"
#include "compute/cuda/cuda_pass.h"
#include "compute/cuda/elementwise.h"
#include "compute/cuda/gemm/gemm.h"
#include "compute/cuda/gemm/weight.h"
#include "compute/cuda/kv/tile_copy.h"
#include "compute/cuda/runtime/busy_clock.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/open_device.h"
#include "compute/cuda/tokens/choose_columns.h"

namespace talon {

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

  std::unique_ptr<Pass> NewPass(int query_heads) override;
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override;
  void Record(Pass* pass, const Pass* second, uint64_t key,
              const std::function<void()>& ops) override;

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
  static const cuda::DevicePlan& PlanOf(const Pass& pass) {
    return static_cast<const cuda::CudaPass&>(pass).plan();
  }
  // The left operand of a product with `w`: room for it, in w's type and padded as w wants.
  cuda::RowsOut Operand(const cuda::CudaWeight& w, int rows, cuda::Scratch* scratch);
  void RunAttention(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                    const cuda::RowsOut& out);
  // RmsNorm(x) as the left operand of a product with `w`.
  cuda::Operand NormedOperand(MatrixView x, const float* norm, float epsilon,
                              const cuda::CudaWeight& w);
  // out += x * w^T (+ bias).
  void AddProduct(const cuda::Operand& x, const cuda::CudaWeight& w, const float* bias,
                  MatrixView out);
  // Index arrays of a KV op, one behind the other, in device memory until the next upload.
  const int32_t* Upload(std::span<const int32_t> first, std::span<const int32_t> second = {});
  // The cache's layers in device memory.
  const KvLayer* Layers(const KvView& kv);
  void* TopKScratch(MatrixView x, int k);
  // Host memory that the device writes; holds until the next call.
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
  cuda::BusyClock clock_{&stream_};
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

}  // namespace talon

#endif  // TALON_COMPUTE_CUDA_CUDA_BACKEND_CLASS_H_
