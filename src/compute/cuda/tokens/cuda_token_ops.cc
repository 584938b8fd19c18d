#include "compute/cuda/tokens/cuda_token_ops.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/contain.h"
#include "base/math.h"
#include "compute/cuda/runtime/device_pass.h"
#include "compute/cuda/tokens/beam_search.h"
#include "compute/cuda/tokens/best_first.h"
#include "compute/cuda/tokens/draw_tokens.h"
#include "compute/cuda/tokens/mask_rows.h"
#include "compute/cuda/tokens/top_k.h"

namespace talon::cuda {

template <typename T>
T* CudaTokenOps::Pinned(size_t count) {
  if (pinned_.bytes() < count * sizeof(T)) {
    pinned_ = MemoryOrThrow(AllocatePinned(2 * count * sizeof(T)));
  }
  return static_cast<T*>(pinned_.data());
}

void CudaTokenOps::Argmax(MatrixView x, std::span<int32_t> out) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(static_cast<int>(out.size()) == x.rows);
  if (x.rows == 0) return;
  const size_t count = static_cast<size_t>(x.rows) * kArgmaxParts;
  const std::span<uint64_t> found(Pinned<uint64_t>(count), count);
  ArgmaxKeys(stream(), x, found.data());  // to host memory
  context_->Synchronize();
  for (int r = 0; r < x.rows; ++r) {
    const auto parts = found.subspan(static_cast<size_t>(r) * kArgmaxParts, kArgmaxParts);
    out[r] = IndexOfKey(*std::max_element(parts.begin(), parts.end()));
  }
}

void CudaTokenOps::TopK(MatrixView x, int k, std::span<TopKEntry> out) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(k <= x.cols && static_cast<int>(out.size()) == x.rows * k);
  if (out.empty()) return;
  void* scratch = top_k_scratch_.Get(TopKScratchBytes(x.rows, x.cols, k));
  auto* entries = best_.GetAs<TopKEntry>(out.size());
  cuda::TopK(stream(), x, k, scratch, entries);
  auto* found = Pinned<TopKEntry>(out.size());
  context_->Copy(found, entries, out.size_bytes());
  std::copy_n(found, out.size(), out.begin());
}

void CudaTokenOps::MaskRows(MatrixView x, std::span<const int32_t> rows,
                            std::span<const uint64_t> masks) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(masks.size() == rows.size() * CeilDiv(x.cols, 64));
  if (rows.empty()) return;
  const size_t bytes = masks.size_bytes() + rows.size_bytes();
  auto* host = static_cast<uint8_t*>(context_->uploads()->Begin(bytes));
  std::memcpy(host, masks.data(), masks.size_bytes());
  std::memcpy(host + masks.size_bytes(), rows.data(), rows.size_bytes());
  auto* device = masks_.GetAs<uint8_t>(bytes);
  context_->uploads()->Send(device, bytes);
  cuda::MaskRows(stream(), x, static_cast<int>(rows.size()),
                 reinterpret_cast<const int32_t*>(device + masks.size_bytes()),
                 reinterpret_cast<const uint64_t*>(device));
}

void CudaTokenOps::DrawTokens(const Pass& pass, MatrixView logits, std::span<const RowDraw> draws,
                              std::span<int32_t> out) {
  const CudaClock::Batch batch(context_->clock());
  const auto rows = static_cast<size_t>(logits.rows);
  TALON_CHECK(PlanOf(pass).outputs == logits.rows && draws.size() == rows && out.size() == rows);
  auto* device = draws_.GetAs<RowDraw>(rows);
  std::copy(draws.begin(), draws.end(),
            static_cast<RowDraw*>(context_->uploads()->Begin(draws.size_bytes())));
  context_->uploads()->Send(device, draws.size_bytes());
  auto* tokens = Pinned<int32_t>(rows);
  cuda::DrawTokens(stream(), PlanOf(pass), logits, device, tokens);
  context_->Synchronize();
  std::copy_n(tokens, rows, out.begin());
}

Result<std::unique_ptr<BeamSearch>> CudaTokenOps::NewBeamSearch(
    const BeamLimits& limits, std::span<const int32_t> token_ids) {
  TALON_ASSIGN_OR_RETURN(auto search, CudaBeamSearch::Create(context_, limits, token_ids));
  return std::unique_ptr<BeamSearch>(std::move(search));
}

Result<std::unique_ptr<BestFirstSearch>> CudaTokenOps::NewBestFirstSearch(
    const BestFirstLimits& limits, std::span<const int32_t> token_ids) {
  TALON_ASSIGN_OR_RETURN(auto search, CudaBestFirstSearch::Create(context_, limits, token_ids));
  return std::unique_ptr<BestFirstSearch>(std::move(search));
}

}  // namespace talon::cuda
