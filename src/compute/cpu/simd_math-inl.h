// Vector functions shared by the SIMD files of this folder. Per-target include guard, as Highway
// asks.
#if defined(TALON_COMPUTE_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALON_COMPUTE_CPU_SIMD_MATH_INL_H_
#undef TALON_COMPUTE_CPU_SIMD_MATH_INL_H_
#else
#define TALON_COMPUTE_CPU_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "compute/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace talon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// (2^r - 1) / r for |r| <= 0.5, in a short chain of dependent operations.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2Slope(D d, V r) {
  const V r2 = hn::Mul(r, r);
  const V low = hn::MulAdd(hn::Set(d, 0.240226507f), r, hn::Set(d, 0.693147182f));
  const V middle = hn::MulAdd(hn::Set(d, 0.00961808302f), r, hn::Set(d, 0.0555035695f));
  const V high = hn::MulAdd(hn::Set(d, 0.000154531634f), r, hn::Set(d, 0.00133908633f));
  return hn::MulAdd(hn::MulAdd(high, r2, middle), r2, low);
}

// 2^x for x <= 127, relative error below 1e-7. Exactly 1 at 0, exactly 0 below -126; NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: rounds to an integer in the low bits
  const V shifted = hn::Add(x, magic);
  const V r = hn::Sub(x, hn::Sub(shifted, magic));  // [-0.5, 0.5]
  const V p = hn::MulAdd(Exp2Slope(d, r), r, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const V scaled = hn::BitCast(d, hn::Add(hn::BitCast(du, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), scaled);
}

// e^x for x <= 88; 0 where the result would be subnormal.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  return Exp2(d, hn::Mul(x, hn::Set(d, 1.44269504f)));
}

// Elements of a file or cache type as float32 lanes.
template <class D>
HWY_INLINE hn::Vec<D> LoadAsF32(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAsF32(D d, const hwy::float16_t* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), p));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAsF32(D d, const hwy::bfloat16_t* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), p));
}

inline float ScalarAsF32(const float* p) { return *p; }
inline float ScalarAsF32(const hwy::float16_t* p) { return LoadElement(p, DType::kF16, 0); }
inline float ScalarAsF32(const hwy::bfloat16_t* p) { return LoadElement(p, DType::kBF16, 0); }

}  // namespace HWY_NAMESPACE
}  // namespace talon
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
