// A pass in device memory, and the CUDA graphs captured for it.
#ifndef TALON_COMPUTE_CUDA_CUDA_PASS_H_
#define TALON_COMPUTE_CUDA_CUDA_PASS_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "compute/cuda/attention/plan.h"
#include "compute/cuda/cuda_backend.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/device_pass.h"
#include "compute/cuda/runtime/device_plan.h"

namespace talon::cuda {

class CudaPass : public DevicePass {
 public:
  CudaPass(const Stream& stream, int query_heads, const CudaOptions& options)
      : stream_(stream), query_heads_(query_heads), options_(options) {}
  ~CudaPass() override { DropGraphs(); }

  // Uploads the plan. Addresses change, and graphs are dropped, only when an array outgrows its
  // place.
  void Load(const PassPlan& plan, const KvShape& shape, UploadRing* uploads);
  int num_partials() const { return attention_.num_partials; }
  int query_heads() const { return query_heads_; }

  // Runs `ops`: directly a few times, then captured in a graph if the same shape comes again, and
  // replayed from then on. `generation` counts the changes of addresses outside of the pass.
  void RunAsGraph(const CudaPass* second, uint64_t key, uint64_t generation,
                  const std::function<void()>& ops);

 private:
  // Everything that launches depend on besides the contents of device memory.
  struct Shape {
    uint64_t address_version = 0;
    int rows = 0;
    int sequences = 0;
    int mask_words = 0;
    int outputs = 0;
    int features = 0;
    int score_requests = 0;
    int scored_blocks = 0;
    int tile_queries = 0;
    PrefixKernelKind kernel = PrefixKernelKind::kTiles;
    bool has_tails = false;
    bool only_sections = false;
    auto operator<=>(const Shape&) const = default;
  };
  struct GraphKey {
    uint64_t key = 0;
    Shape shape;
    Shape second;  // empty without a second pass
    auto operator<=>(const GraphKey&) const = default;
  };
  struct Graph {
    int direct_runs = 0;
    cudaGraphExec_t executable = nullptr;  // null: not captured yet
    std::vector<uint8_t> stored_layers;    // what its ops report
  };
  struct Section {
    size_t capacity = 0;
    size_t offset = 0;
  };
  static constexpr int kSections = 20;

  // The arrays in the order in which they lie in memory; the one that varies most is last.
  std::array<std::pair<const void*, size_t>, kSections> Arrays(const PassPlan& plan);
  void Grow(std::span<const std::pair<const void*, size_t>> arrays);
  void SetPointers();
  template <typename T>
  const T* At(int section) const {
    return reinterpret_cast<const T*>(static_cast<const uint8_t*>(arena_.data()) +
                                      sections_[section].offset);
  }
  void CompileRows(const PassPlan& plan);
  Shape shape() const;
  void CaptureGraph(const std::function<void()>& ops, Graph* to);
  void DropGraphs();

  Stream stream_;
  int query_heads_;
  CudaOptions options_;
  Buffer arena_;
  uint64_t address_version_ = 0;  // counts the changes of its address
  std::array<Section, kSections> sections_;

  // Host arrays that a PassPlan does not have in this form.
  std::vector<int32_t> places_, row_sequence_, nodes_before_, staging_first_, first_list_,
      many_lists_;
  AttentionPlan attention_;

  uint64_t generation_ = 0;
  std::map<GraphKey, Graph> graphs_;
  int num_captured_ = 0;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_CUDA_PASS_H_
