#include "compute/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "compute/cuda/attention/attention.h"
#include "compute/cuda/cuda_backend_class.h"
#include "compute/cuda/runtime/read_bandwidth.h"

namespace talon {

using cuda::BusyClock;
using cuda::CudaPass;

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

Result<std::unique_ptr<Weight>> CudaBackend::PackWeight(std::span<const HostMatrix> parts,
                                                        WeightFormat format) {
  TALON_ASSIGN_OR_RETURN(auto weight, cuda::PackWeight(stream_, parts, format));
  TALON_RETURN_IF_ERROR(gemm_.Reserve(*weight));
  ++generation_;  // what was reserved may have moved
  return std::unique_ptr<Weight>(std::move(weight));
}

// ---- Passes and their recordings ----

std::unique_ptr<Pass> CudaBackend::NewPass(int query_heads) {
  return std::make_unique<CudaPass>(stream_, query_heads, options_.deterministic);
}

void CudaBackend::LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) {
  const BusyClock::Batch batch(&clock_);
  auto* cuda_pass = static_cast<CudaPass*>(pass);
  cuda_pass->Load(plan, shape, &uploads_);
  // Here and not in Attention, which a replayed pass does not call.
  attention_.Get(cuda::AttentionScratchBytes(cuda_pass->num_partials(), cuda_pass->query_heads(),
                                             shape.head_dim));
}

void CudaBackend::Record(Pass* pass, const Pass* second, uint64_t key,
                         const std::function<void()>& ops) {
  const BusyClock::Batch batch(&clock_);
  static_cast<CudaPass*>(pass)->RunRecorded(static_cast<const CudaPass*>(second), key, generation_,
                                            ops);
}

// ---- Opening a device ----

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
