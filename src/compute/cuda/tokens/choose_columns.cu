#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/contain.h"
#include "compute/cuda/tokens/choose_columns.h"
#include "compute/cuda/tokens/top_k.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
static_assert(kDigits == kThreads, "a thread for each digit");

struct Shared {
  int counts[kDigits];
  int warp_sums[kWarps];
  uint32_t digit;
  int above;  // keys with a higher digit
};

struct PlacedChoice {
  ColumnChoice choice;
  int64_t first;  // index of its first result: [rows][count]
};

// NaN ranks as -inf, and zeros are equal.
__device__ __forceinline__ uint32_t KeyOf(float value) {
  if (value == 0) value = 0;
  return OrderedBits(isnan(value) ? -INFINITY : value);
}

// How many threads before this one, of all in the block, have the flag; and how many have it.
__device__ __forceinline__ int RankOf(bool flag, Shared& shared, int* total) {
  const uint32_t bits = __ballot_sync(0xffffffffu, flag);
  const int warp = threadIdx.x / 32;
  __syncthreads();  // the sums of the call before have been read
  if (threadIdx.x % 32 == 0) shared.warp_sums[warp] = __popc(bits);
  __syncthreads();
  int before = 0;
  *total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    before += w < warp ? shared.warp_sums[w] : 0;
    *total += shared.warp_sums[w];
  }
  return before + __popc(bits & ((1u << (threadIdx.x % 32)) - 1));
}

// The digit of the wanted-th largest key among those that have `prefix` above the digit's bits.
__device__ void FindDigit(const float* values, int count, uint32_t prefix, int shift, int wanted,
                          Shared& shared) {
  shared.counts[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const uint32_t key = KeyOf(values[i]);
    const bool fits = shift + kDigitBits == 32 || key >> (shift + kDigitBits) == prefix;
    if (fits) atomicAdd(&shared.counts[key >> shift & (kDigits - 1)], 1);
  }
  __syncthreads();
  int above = 0;
  for (int digit = threadIdx.x + 1; digit < kDigits; ++digit) above += shared.counts[digit];
  if (above < wanted && above + shared.counts[threadIdx.x] >= wanted) {  // one thread
    shared.digit = threadIdx.x;
    shared.above = above;
  }
  __syncthreads();
}

// Writes the columns of keys above `least`, and the first `equal` of those that have it.
__device__ void WriteChosen(const float* values, const ColumnChoice& choice, uint32_t least,
                            int equal, Shared& shared, int32_t* out) {
  const int count = choice.end - choice.begin;
  int written = 0;
  for (int first = 0; first < count; first += kThreads) {
    const int i = first + threadIdx.x;
    const uint32_t key = i < count ? KeyOf(values[i]) : 0;
    int num_equal = 0, num_chosen = 0;
    const int rank = RankOf(i < count && key == least, shared, &num_equal);
    const bool chosen = i < count && (key > least || (key == least && rank < equal));
    const int at = RankOf(chosen, shared, &num_chosen);
    if (chosen) out[written + at] = choice.begin + i;
    written += num_chosen;
    equal -= min(equal, num_equal);
  }
}

// A block for each (choice, row): the wanted-th largest key digit by digit, then one pass in order.
__global__ void __launch_bounds__(kThreads)
    ChooseKernel(MatrixView x, const PlacedChoice* choices, int32_t* out) {
  __shared__ Shared shared;
  PdlTrigger();
  PdlWait();
  const PlacedChoice placed = choices[blockIdx.x];
  const ColumnChoice choice = placed.choice;
  const int count = choice.end - choice.begin;
  const float* values = x.data + blockIdx.y * x.stride + choice.begin;
  out += placed.first + static_cast<int64_t>(blockIdx.y) * choice.count;
  bool any = false;
  for (int i = threadIdx.x; i < count; i += kThreads) any |= values[i] > -INFINITY;
  const bool has_values = __syncthreads_or(any) != 0;
  uint32_t least = 0;
  int wanted = choice.count;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    FindDigit(values, count, least, shift, wanted, shared);
    least = least << kDigitBits | shared.digit;
    wanted -= shared.above;
    __syncthreads();  // before the next digit's counts
  }
  WriteChosen(values, choice, least, wanted, shared, out);
  __syncthreads();
  if (!has_values && threadIdx.x == 0) out[0] = -1;
}

}  // namespace

void ColumnChooser::Choose(MatrixView x, std::span<const ColumnChoice> choices,
                           UploadRing* uploads) {
  auto* placed = static_cast<PlacedChoice*>(uploads->Begin(choices.size() * sizeof(PlacedChoice)));
  size_t wanted = 0;
  num_chosen_ = 0;
  for (const ColumnChoice& choice : choices) {
    TALON_CHECK(0 <= choice.begin && choice.end <= x.cols && 0 <= choice.count &&
                choice.count <= choice.end - choice.begin);
    if (choice.count == 0) continue;
    placed[wanted++] = {choice, static_cast<int64_t>(num_chosen_)};
    num_chosen_ += static_cast<size_t>(x.rows) * choice.count;
  }
  if (num_chosen_ == 0) return;
  const size_t bytes = num_chosen_ * sizeof(int32_t);
  auto* out = static_cast<int32_t*>(device_.Get(bytes));
  auto* on_device = static_cast<PlacedChoice*>(choices_.Get(wanted * sizeof(PlacedChoice)));
  uploads->Send(on_device, wanted * sizeof(PlacedChoice));
  Launch(*stream_, ChooseKernel, dim3(static_cast<int>(wanted), x.rows), kThreads, 0, x, on_device,
         out);
  if (host_.bytes() < bytes) {
    host_ = MemoryOrThrow(AllocatePinned(std::bit_ceil(bytes)));
  }
  TALON_CUDA_CHECK(
      cudaMemcpyAsync(host_.data(), out, bytes, cudaMemcpyDeviceToHost, stream_->handle));
}

}  // namespace talon::cuda
