#include "compute/cpu/elementwise.h"

// Arm machines with SVE run NEON: the register blocks need vectors of a known size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/elementwise.cc"
#include <hwy/foreach_target.h>  // NOLINT: must precede the SIMD headers
#include <hwy/highway.h>

#include <cmath>

#include "compute/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace talon {
namespace HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

HWY_INLINE int LanesF() { return static_cast<int>(hn::Lanes(DF())); }

float SumOfSquares(const float* x, int cols) {
  const DF d;
  const int lanes = LanesF();
  VF sum0 = hn::Zero(d);
  VF sum1 = hn::Zero(d);
  VF sum2 = hn::Zero(d);
  VF sum3 = hn::Zero(d);
  int i = 0;
  for (; i + 4 * lanes <= cols; i += 4 * lanes) {
    const VF x0 = hn::LoadU(d, x + i);
    const VF x1 = hn::LoadU(d, x + i + lanes);
    const VF x2 = hn::LoadU(d, x + i + 2 * lanes);
    const VF x3 = hn::LoadU(d, x + i + 3 * lanes);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  for (; i + lanes <= cols; i += lanes) {
    const VF x0 = hn::LoadU(d, x + i);
    sum0 = hn::MulAdd(x0, x0, sum0);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < cols; ++i) sum += x[i] * x[i];
  return sum;
}

void RmsNorm(const float* x, int cols, const float* weight, float epsilon, float* out) {
  const DF d;
  const int lanes = LanesF();
  const float factor = 1.0f / std::sqrt(SumOfSquares(x, cols) / static_cast<float>(cols) + epsilon);
  int i = 0;
  for (; i + lanes <= cols; i += lanes) {
    const VF scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < cols; ++i) out[i] = x[i] * factor * weight[i];
}

void Rope(float* head, const float* angles, int half) {
  const DF d;
  const int lanes = LanesF();
  int i = 0;
  for (; i + lanes <= half; i += lanes) {
    const VF cosine = hn::LoadU(d, angles + i);
    const VF sine = hn::LoadU(d, angles + half + i);
    const VF a = hn::LoadU(d, head + i);
    const VF b = hn::LoadU(d, head + half + i);
    hn::StoreU(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), d, head + i);
    hn::StoreU(hn::MulAdd(a, sine, hn::Mul(b, cosine)), d, head + half + i);
  }
  for (; i < half; ++i) {
    const float a = head[i];
    const float b = head[half + i];
    head[i] = a * angles[i] - b * angles[half + i];
    head[half + i] = b * angles[i] + a * angles[half + i];
  }
}

HWY_INLINE VF SwiGluLanes(DF d, VF gate, VF up) {
  // e^-gate, kept finite so that a very negative gate gives a zero instead of 0 * infinity.
  const VF e = Exp(d, hn::Min(hn::Neg(gate), hn::Set(d, 87.0f)));
  return hn::Mul(hn::Div(gate, hn::Add(hn::Set(d, 1.0f), e)), up);
}

void SwiGlu(const float* gate, const float* up, int cols, float* out) {
  const DF d;
  const int lanes = LanesF();
  int i = 0;
  for (; i + lanes <= cols; i += lanes) {
    hn::StoreU(SwiGluLanes(d, hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i);
  }
  for (; i < cols; ++i) {
    out[i] = hn::GetLane(SwiGluLanes(d, hn::Set(d, gate[i]), hn::Set(d, up[i])));
  }
}

HWY_INLINE VF ClampedGateLanes(DF d, VF gate, VF up, VF limit) {
  const VF g = hn::Min(gate, limit);
  const VF u = hn::Max(hn::Min(up, limit), hn::Neg(limit));
  const VF e = Exp(d, hn::Min(hn::Mul(g, hn::Set(d, -1.702f)), hn::Set(d, 87.0f)));
  const VF one = hn::Set(d, 1.0f);
  return hn::Mul(hn::Div(g, hn::Add(one, e)), hn::Add(u, one));
}

void ClampedGate(const float* gate_up, int cols, float limit, float* out) {
  const DF d;
  const int lanes = LanesF();
  const VF bound = hn::Set(d, limit);
  int i = 0;
  for (; i + lanes <= cols; i += lanes) {
    VF gate, up;
    hn::LoadInterleaved2(d, gate_up + 2 * i, gate, up);
    hn::StoreU(ClampedGateLanes(d, gate, up, bound), d, out + i);
  }
  for (; i < cols; ++i) {
    const VF gate = hn::Set(d, gate_up[2 * i]);
    const VF up = hn::Set(d, gate_up[2 * i + 1]);
    out[i] = hn::GetLane(ClampedGateLanes(d, gate, up, bound));
  }
}

// The largest value that is not NaN, -inf if there is none.
float LargestValue(const float* x, int cols) {
  const DF d;
  const int lanes = LanesF();
  float largest = -HUGE_VALF;
  VF best = hn::Set(d, largest);
  int i = 0;
  for (; i + lanes <= cols; i += lanes) {
    const VF value = hn::LoadU(d, x + i);
    best = hn::IfThenElse(hn::Gt(value, best), value, best);
  }
  largest = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < cols; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

// First index in [begin, cols) whose value is greater than `bound` (or, with kEqual, equals it).
template <bool kEqual>
int FindFirst(const float* x, int begin, int cols, float bound) {
  const DF d;
  const int lanes = LanesF();
  const VF limit = hn::Set(d, bound);
  int i = begin;
  for (; i + lanes <= cols; i += lanes) {
    const VF value = hn::LoadU(d, x + i);
    const auto found = kEqual ? hn::Eq(value, limit) : hn::Gt(value, limit);
    if (!hn::AllFalse(d, found)) break;
  }
  for (; i < cols; ++i) {
    if (kEqual ? x[i] == bound : x[i] > bound) return i;
  }
  return cols;
}

int FindEqual(const float* x, int cols, float value) { return FindFirst<true>(x, 0, cols, value); }
int FindGreater(const float* x, int begin, int cols, float bound) {
  return FindFirst<false>(x, begin, cols, bound);
}

float SumOfExp(const float* x, int cols, float largest) {
  const DF d;
  const int lanes = LanesF();
  const VF base = hn::Set(d, largest);
  VF sum0 = hn::Zero(d);
  VF sum1 = hn::Zero(d);
  int i = 0;
  for (; i + 2 * lanes <= cols; i += 2 * lanes) {
    sum0 = hn::Add(sum0, Exp(d, hn::Sub(hn::LoadU(d, x + i), base)));
    sum1 = hn::Add(sum1, Exp(d, hn::Sub(hn::LoadU(d, x + i + lanes), base)));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < cols; ++i) sum += hn::GetLane(Exp(d, hn::Set(d, x[i] - largest)));
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace talon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace talon {

HWY_EXPORT(RmsNorm);
HWY_EXPORT(Rope);
HWY_EXPORT(SwiGlu);
HWY_EXPORT(ClampedGate);
HWY_EXPORT(LargestValue);
HWY_EXPORT(FindEqual);
HWY_EXPORT(FindGreater);
HWY_EXPORT(SumOfExp);

void RmsNormRow(const float* x, int cols, const float* weight, float epsilon, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, cols, weight, epsilon, out);
}

void RopeHead(float* head, const float* angles, int half) {
  HWY_DYNAMIC_DISPATCH(Rope)(head, angles, half);
}

void SwiGluRow(const float* gate, const float* up, int cols, float* out) {
  HWY_DYNAMIC_DISPATCH(SwiGlu)(gate, up, cols, out);
}

void ClampedGateRow(const float* gate_up, int cols, float limit, float* out) {
  HWY_DYNAMIC_DISPATCH(ClampedGate)(gate_up, cols, limit, out);
}

int32_t ArgmaxRow(const float* x, int cols) {
  const float largest = HWY_DYNAMIC_DISPATCH(LargestValue)(x, cols);
  const int found = HWY_DYNAMIC_DISPATCH(FindEqual)(x, cols, largest);
  return found < cols ? found : 0;
}

namespace {

// The order of candidates: larger value first, NaN last, the lower id first among equals.
// While a row is scanned, TopKEntry::log_prob holds the raw value.
bool Better(const TopKEntry& a, const TopKEntry& b) {
  if (a.log_prob > b.log_prob) return true;
  if (std::isnan(b.log_prob) != std::isnan(a.log_prob)) return std::isnan(b.log_prob);
  return !(a.log_prob < b.log_prob) && a.id < b.id;
}

// Moves `candidate` up from the end of the sorted list whose last entry it replaces.
void InsertSorted(std::span<TopKEntry> sorted, TopKEntry candidate) {
  size_t i = sorted.size() - 1;
  for (; i > 0 && Better(candidate, sorted[i - 1]); --i) sorted[i] = sorted[i - 1];
  sorted[i] = candidate;
}

}  // namespace

void TopKRow(const float* x, int cols, std::span<TopKEntry> out) {
  const int k = static_cast<int>(out.size());
  if (k == 0) return;
  for (int i = 0; i < k; ++i) InsertSorted(out.first(i + 1), {i, x[i]});
  for (int i = k; i < cols; ++i) {
    const float worst = out.back().log_prob;
    // Later ids lose ties, so only strictly greater values can enter.
    if (!std::isnan(worst)) i = HWY_DYNAMIC_DISPATCH(FindGreater)(x, i, cols, worst);
    if (i < cols && Better({i, x[i]}, out.back())) InsertSorted(out, {i, x[i]});
  }
  const float largest = HWY_DYNAMIC_DISPATCH(LargestValue)(x, cols);
  const float log_sum = std::log(HWY_DYNAMIC_DISPATCH(SumOfExp)(x, cols, largest));
  for (TopKEntry& entry : out) {
    entry.log_prob = std::isnan(log_sum) ? log_sum : entry.log_prob - largest - log_sum;
  }
}

}  // namespace talon
#endif  // HWY_ONCE
