#include "setup/ranks.h"

#include <numeric>
#include <string>
#include <vector>

#include "base/contain.h"
#include "base/log.h"
#include "compute/cpu/cpu_features.h"
#include "compute/cuda/cuda_backend.h"
#include "model/ranks/messages.h"

namespace talon {
namespace {

// What ranks must have in common: the model, and GPUs of one kind or processors of one kind, whose
// kernels give the same bits.
uint64_t Fingerprint(const Config& config, const Decoder& decoder, const BackendInfo& device) {
  const ModelConfig& model = decoder.config();
  RankHash hash;
  for (const int value :
       {model.vocab_size, model.hidden_size, model.num_layers, model.num_heads, model.num_kv_heads,
        model.head_dim, model.intermediate_size, model.experts.count, model.max_context,
        decoder.max_rows(), decoder.max_output_rows()}) {
    hash.Add(static_cast<uint64_t>(value));
  }
  const bool is_gpu = device.rank_split == RankSplit::kOutputs;
  for (const std::string& text :
       {config.weights, config.activations, is_gpu ? device.description : CpuFeatureNames()}) {
    hash.Add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  return hash.value();
}

// The ranks that run on a GPU.
Result<int> CountGpus(const Backend& backend, Ranks* ranks) {
  std::vector<uint8_t> on_gpu(ranks->size());
  on_gpu[ranks->rank()] = backend.info().name == "cuda" ? 1 : 0;
  std::vector<int64_t> bounds(ranks->size() + 1);
  std::iota(bounds.begin(), bounds.end(), 0);
  TALON_RETURN_IF_ERROR(Contain([&] { ranks->AllGather(on_gpu.data(), bounds); }));
  return std::accumulate(on_gpu.begin(), on_gpu.end(), 0);
}

template <typename T>
std::span<uint8_t> BytesOf(T* value) {
  return {reinterpret_cast<uint8_t*>(value), sizeof(T)};
}

}  // namespace

Status CheckRankSettings(const Config& config) {
  const int size = config.tensor_parallel;
  if (size == 1) return OkStatus();
  if (config.kv_offload) {
    return Unimplemented("kv_offload: not on {} ranks (--tensor-parallel)", size);
  }
  // A rank of CPUs has some inputs of an output's scales, which are given up (CutGrid).
  if (config.activations == "fp8" && config.device == "cpu" && config.weights != "fp8") {
    return Unimplemented("activations: fp8 on {} ranks of a CPU needs --weights fp8, not {}", size,
                         config.weights);
  }
  return OkStatus();
}

Status LinkRanks(const Config& config, Backend* backend, Ranks* ranks) {
  if (ranks == nullptr) return OkStatus();
  TALON_ASSIGN_OR_RETURN(const int gpus, CountGpus(*backend, ranks));
  if (gpus < ranks->size()) return OkStatus();  // where some have none, MeetRanks says so
  TALON_ASSIGN_OR_RETURN(const std::string why_not,
                         LinkGpus(backend, ranks, /*wanted=*/!config.disable_nccl));
  if (!ranks->leads()) return OkStatus();
  if (why_not.empty()) {
    LogInfo("tensor_parallel: activations go from GPU to GPU by NCCL");
  } else {
    LogWarning("tensor_parallel: activations go from GPU to GPU through host memory, slowly: {}",
               why_not);
  }
  return OkStatus();
}

Status MeetRanks(const Config& config, const Decoder& decoder, const BackendInfo& device,
                 Ranks* ranks) {
  uint64_t own = Fingerprint(config, decoder, device);
  int different = 0;  // a rank
  uint8_t heard = 1;
  const auto follow = [&] {
    ranks->Send(0, BytesOf(&own));
    ranks->Receive(0, BytesOf(&different));
    ranks->Send(0, BytesOf(&heard));
  };
  const auto lead = [&] {
    for (int rank = 1; rank < ranks->size(); ++rank) {
      uint64_t other = 0;
      ranks->Receive(rank, BytesOf(&other));
      if (other != own) different = rank;
    }
    for (int rank = 1; rank < ranks->size(); ++rank) ranks->Send(rank, BytesOf(&different));
    // A message may lie in this process until the next call: waits until all have theirs.
    for (int rank = 1; rank < ranks->size(); ++rank) ranks->Receive(rank, BytesOf(&heard));
  };
  TALON_RETURN_IF_ERROR(Contain([&] { ranks->leads() ? lead() : follow(); }));
  if (different != 0) {
    return InvalidArgument(
        "tensor_parallel: rank {} has another model, processor, GPU or settings than rank 0",
        different);
  }
  ranks->SetDeadline(config.rank_timeout);
  return OkStatus();
}

}  // namespace talon
