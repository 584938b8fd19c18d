#include "compute/cuda/runtime/rank_exchange.h"

#include <bit>
#include <vector>

#include "base/check.h"
#include "base/contain.h"
#include "compute/cuda/runtime/copy_rows.h"

namespace talon::cuda {
namespace {

// Where the ranks' columns begin and end in staging memory.
std::vector<int64_t> BlocksOf(std::span<const int> bounds, int64_t column_bytes) {
  std::vector<int64_t> blocks;
  for (const int bound : bounds) blocks.push_back(bound * column_bytes);
  return blocks;
}

}  // namespace

uint8_t* RankExchange::Take(size_t bytes) {
  if (link_ != nullptr) return device_.GetAs<uint8_t>(bytes);
  if (pinned_.bytes() < bytes) {
    context_->Synchronize();  // a copy may still read it
    pinned_ = MemoryOrThrow(AllocatePinned(std::bit_ceil(bytes)));
  }
  return static_cast<uint8_t*>(pinned_.data());
}

void RankExchange::Copy(void* to, int64_t to_stride, const void* from, int64_t from_stride,
                        int64_t row_bytes, int rows) const {
  if (rows == 0 || row_bytes == 0) return;
  TALON_CUDA_CHECK(cudaMemcpy2DAsync(to, to_stride, from, from_stride, row_bytes, rows,
                                     cudaMemcpyDefault, context_->stream().handle));
}

void RankExchange::AllGather(Ranks* ranks, uint8_t* staged, std::span<const int64_t> bounds) {
  if (link_ != nullptr) return link_->AllGather(staged, bounds);
  context_->Synchronize();
  ranks->AllGather(staged, bounds);
}

// The copies back may still run when this returns: the next ones from or to the same memory come
// after them.
void RankExchange::ShareColumns(Ranks* ranks, const DeviceRows& x, std::span<const int> bounds,
                                int value_bytes) {
  const int rank = ranks->rank(), size = ranks->size();
  TALON_CHECK(static_cast<int>(bounds.size()) == size + 1);
  const std::vector<int64_t> blocks = BlocksOf(bounds, int64_t{value_bytes} * x.rows);
  uint8_t* staged = Take(blocks.back());
  auto* device = static_cast<uint8_t*>(x.data);
  const auto row_bytes = [&](int r) { return int64_t{bounds[r + 1] - bounds[r]} * value_bytes; };
  Copy(staged + blocks[rank], row_bytes(rank), device + int64_t{bounds[rank]} * value_bytes,
       x.stride, row_bytes(rank), x.rows);
  AllGather(ranks, staged, blocks);
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    Copy(device + int64_t{bounds[r]} * value_bytes, x.stride, staged + blocks[r], row_bytes(r),
         row_bytes(r), x.rows);
  }
}

void RankExchange::ShareRows(Ranks* ranks, MatrixView x, std::span<const int> owners) {
  TALON_CHECK(static_cast<int>(owners.size()) == x.rows);
  const int64_t row_bytes = int64_t{x.cols} * static_cast<int64_t>(sizeof(float));
  // Each rank's rows in order; this rank's come first in `rows`, with their places in `places`.
  std::vector<int64_t> blocks(ranks->size() + 1);
  for (const int owner : owners) ++blocks[owner + 1];
  for (size_t r = 1; r < blocks.size(); ++r) blocks[r] += blocks[r - 1];
  const auto own = static_cast<int>(blocks[ranks->rank() + 1] - blocks[ranks->rank()]);
  std::vector<int64_t> next(blocks.begin(), blocks.end() - 1);
  std::vector<int32_t> rows(x.rows), places(x.rows);
  for (int i = 0, of_own = 0, of_others = own; i < x.rows; ++i) {
    int& at = owners[i] == ranks->rank() ? of_own : of_others;
    rows[at] = i;
    places[at++] = static_cast<int32_t>(next[owners[i]]++);
  }
  for (int64_t& block : blocks) block *= row_bytes;
  uint8_t* staged = Take(blocks.back());
  const MatrixView packed{reinterpret_cast<float*>(staged), x.rows, x.cols, x.cols};
  const int32_t* device_rows = context_->UploadIndices(rows, places);
  const int32_t* device_places = device_rows + x.rows;
  CopyRows(context_->stream(), x, device_rows, packed, device_places, own);
  AllGather(ranks, staged, blocks);
  CopyRows(context_->stream(), packed, device_places + own, x, device_rows + own, x.rows - own);
}

void RankExchange::GatherColumns(Ranks* ranks, MatrixView part, std::span<const int> bounds,
                                 MatrixView whole) {
  constexpr int64_t kValue = sizeof(float);
  const int rank = ranks->rank(), size = ranks->size();
  TALON_CHECK(static_cast<int>(bounds.size()) == size + 1 &&
              part.cols == bounds[rank + 1] - bounds[rank]);
  const std::vector<int64_t> blocks = BlocksOf(bounds, kValue * part.rows);
  uint8_t* staged = Take(ranks->leads() ? blocks.back() : kValue * part.rows * part.cols);
  Copy(staged, part.cols * kValue, part.data, part.stride * kValue, part.cols * kValue, part.rows);
  if (link_ != nullptr) {
    link_->Gather(staged, blocks);
  } else {
    context_->Synchronize();
    ranks->Gather(staged, blocks);
  }
  if (!ranks->leads()) return;
  TALON_CHECK(whole.rows == part.rows && whole.cols == bounds[size]);
  for (int r = 0; r < size; ++r) {
    const int64_t row_bytes = (bounds[r + 1] - bounds[r]) * kValue;
    Copy(whole.data + bounds[r], whole.stride * kValue, staged + blocks[r], row_bytes, row_bytes,
         whole.rows);
  }
}

}  // namespace talon::cuda
