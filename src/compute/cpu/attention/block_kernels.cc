#include "compute/cpu/attention/block_kernels.h"

// Arm machines with SVE run NEON, as in the other SIMD files.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/attention/block_kernels.cc"
#include <hwy/foreach_target.h>  // NOLINT: must precede the SIMD headers
#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace talon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// D1 has one lane and takes the elements that fill no vector.
using DF = hn::ScalableTag<float>;
using D1 = hn::CappedTag<float, 1>;

// Written out because processors differ in what the larger of a number and NaN is.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LargerOrNaN(D d, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SmallerOrNaN(D d, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

// Extremes of elements [i, i + lanes) over all keys.
template <class D>
HWY_INLINE void Extremes(D d, const float* keys, int count, int head_dim, int i, float* largest,
                         float* smallest) {
  auto most = hn::LoadU(d, keys + i);
  auto least = most;
  for (int key = 1; key < count; ++key) {
    const auto value = hn::LoadU(d, keys + static_cast<int64_t>(key) * head_dim + i);
    most = LargerOrNaN(d, value, most);
    least = SmallerOrNaN(d, value, least);
  }
  hn::StoreU(most, d, largest + i);
  hn::StoreU(least, d, smallest + i);
}

float Norm(const float* key, int head_dim) {
  const DF d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  auto squares = hn::Zero(d);
  int i = 0;
  for (; i + lanes <= head_dim; i += lanes) {
    const auto value = hn::LoadU(d, key + i);
    squares = hn::MulAdd(value, value, squares);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, squares));
  for (; i < head_dim; ++i) sum += key[i] * key[i];
  return std::sqrt(sum);
}

float Summarise(const float* keys, int count, int head_dim, float* largest, float* smallest) {
  const DF d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= head_dim; i += lanes) {
    Extremes(d, keys, count, head_dim, i, largest, smallest);
  }
  for (; i < head_dim; ++i) Extremes(D1(), keys, count, head_dim, i, largest, smallest);
  float norms = 0;
  for (int key = 0; key < count; ++key) {
    norms += Norm(keys + static_cast<int64_t>(key) * head_dim, head_dim);
  }
  return norms / static_cast<float>(count);
}

template <class D>
HWY_INLINE void AddScores(D d, const ScoreRow& row, ScoreReduce reduce, int i) {
  auto score = hn::LoadU(d, row.a + i);
  if (row.b != nullptr) score = LargerOrNaN(d, score, hn::LoadU(d, row.b + i));
  score = hn::IfThenElse(hn::IsNaN(score), hn::Set(d, -HUGE_VALF), score);
  const auto total = hn::LoadU(d, row.total + i);
  hn::StoreU(reduce == ScoreReduce::kMax ? hn::IfThenElse(hn::Gt(score, total), score, total)
                                         : hn::Add(total, score),
             d, row.total + i);
}

void AddRow(const ScoreRow& row, ScoreReduce reduce) {
  const DF d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= row.count; i += lanes) AddScores(d, row, reduce, i);
  for (; i < row.count; ++i) AddScores(D1(), row, reduce, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace talon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace talon {

HWY_EXPORT(Summarise);
HWY_EXPORT(AddRow);

float SummariseKeys(const float* keys, int count, int head_dim, float* largest, float* smallest) {
  return HWY_DYNAMIC_DISPATCH(Summarise)(keys, count, head_dim, largest, smallest);
}

void AddScoreRow(const ScoreRow& row, ScoreReduce reduce) {
  HWY_DYNAMIC_DISPATCH(AddRow)(row, reduce);
}

}  // namespace talon
#endif  // HWY_ONCE
