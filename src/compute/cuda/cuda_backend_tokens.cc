// What becomes of logits: tokens for the host, and draft trees that grow on the device.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compute/cuda/cuda_backend_class.h"
#include "compute/cuda/tokens/beam_search.h"
#include "compute/cuda/tokens/draw_tokens.h"
#include "compute/cuda/tokens/top_k.h"

namespace talon {

using cuda::BusyClock;
using cuda::CudaBeamSearch;

// ---- Tokens ----

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

void* CudaBackend::TopKScratch(MatrixView x, int k) {
  return best_scratch_.Get(cuda::TopKScratchBytes(x.rows, x.cols, k));
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
  TALON_ASSIGN_OR_RETURN(auto search, CudaBeamSearch::Create(stream_, limits, token_ids));
  return std::unique_ptr<BeamSearch>(std::move(search));
}

void CudaBackend::RankRoots(BeamSearch* search, std::span<const int32_t> slots, MatrixView logits,
                            MatrixView outputs, MatrixView kept) {
  const BusyClock::Batch batch(&clock_);
  auto* beams = static_cast<CudaBeamSearch*>(search);
  void* scratch = TopKScratch(logits, beams->width());
  beams->RankRoots(slots, logits, outputs, kept, scratch);
}

void CudaBackend::StartBeams(BeamSearch* search, std::span<const BeamRoot> roots) {
  const BusyClock::Batch batch(&clock_);
  static_cast<CudaBeamSearch*>(search)->Start(roots);
}

void CudaBackend::LoadBeams(BeamSearch* search, Pass* pass, MatrixView kept, MatrixView inputs) {
  const BusyClock::Batch batch(&clock_);
  static_cast<CudaBeamSearch*>(search)->Load(PlanOf(*pass), kept, inputs);
}

void CudaBackend::ExpandBeams(BeamSearch* search, MatrixView logits, MatrixView outputs,
                              MatrixView kept) {
  const BusyClock::Batch batch(&clock_);
  auto* beams = static_cast<CudaBeamSearch*>(search);
  beams->Expand(logits, outputs, kept, TopKScratch(logits, beams->width()));
}

void CudaBackend::LoadTrees(BeamSearch* search, Pass* pass, std::span<const TreePlace> places) {
  const BusyClock::Batch batch(&clock_);
  static_cast<CudaBeamSearch*>(search)->LoadTrees(PlanOf(*pass), places);
  waited_ = false;
}

std::span<const TopKEntry> CudaBackend::ReadBeams(BeamSearch* search) {
  auto* beams = static_cast<CudaBeamSearch*>(search);
  if (beams->SendRankings() || !waited_) Synchronize();
  return beams->rankings();
}

}  // namespace talon
