#include "compute/cuda/runtime/staged_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/contain.h"

namespace talon::cuda {

uint8_t* StagedExchange::Take(size_t bytes, Buffer* buffer) const {
  if (buffer->bytes() < bytes) {
    context_->Synchronize();  // a copy may still read it
    *buffer = MemoryOrThrow(AllocatePinned(std::bit_ceil(bytes)));
  }
  return static_cast<uint8_t*>(buffer->data());
}

void StagedExchange::Copy(void* to, int64_t to_stride, const void* from, int64_t from_stride,
                          int64_t row_bytes, int rows) const {
  if (rows == 0 || row_bytes == 0) return;
  TALON_CUDA_CHECK(cudaMemcpy2DAsync(to, to_stride, from, from_stride, row_bytes, rows,
                                     cudaMemcpyDefault, context_->stream().handle));
}

// The copies back may still run when these return: the next ones from or to the same memory come
// after them.
void StagedExchange::ShareColumns(Ranks* ranks, const DeviceRows& x, std::span<const int> bounds,
                                  int value_bytes) {
  const int rank = ranks->rank(), size = ranks->size();
  TALON_CHECK(static_cast<int>(bounds.size()) == size + 1);
  // One rank's columns behind the other's.
  std::vector<int64_t> blocks;
  for (const int bound : bounds) blocks.push_back(int64_t{bound} * value_bytes * x.rows);
  uint8_t* host = Take(blocks.back(), &whole_);
  auto* device = static_cast<uint8_t*>(x.data);
  const auto row_bytes = [&](int r) { return int64_t{bounds[r + 1] - bounds[r]} * value_bytes; };
  Copy(host + blocks[rank], row_bytes(rank), device + int64_t{bounds[rank]} * value_bytes, x.stride,
       row_bytes(rank), x.rows);
  context_->Synchronize();
  ranks->AllGather(host, blocks);
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    Copy(device + int64_t{bounds[r]} * value_bytes, x.stride, host + blocks[r], row_bytes(r),
         row_bytes(r), x.rows);
  }
}

void StagedExchange::ShareRows(Ranks* ranks, const DeviceRows& x, int64_t row_bytes,
                               std::span<const int> owners) {
  TALON_CHECK(static_cast<int>(owners.size()) == x.rows);
  // One rank's rows behind the other's, in order.
  std::vector<int64_t> blocks(ranks->size() + 1);
  for (const int owner : owners) blocks[owner + 1] += row_bytes;
  for (size_t r = 1; r < blocks.size(); ++r) blocks[r] += blocks[r - 1];
  std::vector<int64_t> next(blocks.begin(), blocks.end() - 1);
  std::vector<int64_t> places;
  for (const int owner : owners) {
    places.push_back(next[owner]);
    next[owner] += row_bytes;
  }
  uint8_t* rows = Take(x.rows * row_bytes, &part_);
  Copy(rows, row_bytes, x.data, x.stride, row_bytes, x.rows);
  context_->Synchronize();
  uint8_t* shared = Take(blocks.back(), &whole_);
  for (int i = 0; i < x.rows; ++i) {
    if (owners[i] == ranks->rank()) {
      std::memcpy(shared + places[i], rows + i * row_bytes, row_bytes);
    }
  }
  ranks->AllGather(shared, blocks);
  for (int i = 0; i < x.rows; ++i) {
    std::memcpy(rows + i * row_bytes, shared + places[i], row_bytes);
  }
  Copy(x.data, x.stride, rows, row_bytes, row_bytes, x.rows);
}

void StagedExchange::GatherColumns(Ranks* ranks, MatrixView part, std::span<const int> bounds,
                                   MatrixView whole) {
  constexpr int64_t kValue = sizeof(float);
  const auto staged = [&](const MatrixView& x, Buffer* buffer) -> MatrixView {
    const size_t bytes = static_cast<size_t>(x.rows) * x.cols * kValue;
    return {reinterpret_cast<float*>(Take(bytes, buffer)), x.rows, x.cols, x.cols};
  };
  const MatrixView host = staged(part, &part_);
  Copy(host.data, host.stride * kValue, part.data, part.stride * kValue, part.cols * kValue,
       part.rows);
  context_->Synchronize();
  if (!ranks->leads()) return ranks->GatherColumns(host, bounds, {});
  const MatrixView all = staged(whole, &whole_);
  ranks->GatherColumns(host, bounds, all);
  Copy(whole.data, whole.stride * kValue, all.data, all.stride * kValue, whole.cols * kValue,
       whole.rows);
}

}  // namespace talon::cuda
