#include "compute/cpu/attention/kv_kernels.h"

// Arm machines with SVE run NEON, like the kernels that read the result.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/attention/kv_kernels.cc"
#include <hwy/foreach_target.h>  // NOLINT: must precede the SIMD headers
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "compute/kv/kv_codes.h"

HWY_BEFORE_NAMESPACE();
namespace talon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Types that expand kCodes codes of one vector at once.
#if HWY_ARCH_ARM_A64
// Sign, exponent and fraction move to their places in bf16, where the exponent's bias is 120 more.
struct Fp8Lanes {
  static constexpr DType kType = DType::kF8E4M3;
  static constexpr int kCodes = 16;
  using Scale = int16x8_t;
  const int16x8_t all = vdupq_n_s16(static_cast<int16_t>(0x87F0));
  const int16x8_t magnitude = vdupq_n_s16(0x07F0);

  static HWY_INLINE Scale Load(uint8_t scale) {
    return vdupq_n_s16(static_cast<int16_t>((scale - 7) << 7));
  }
  HWY_INLINE uint16x8_t Eight(int16x8_t wide, Scale exponent) const {
    const uint16x8_t is_number = vtstq_s16(wide, magnitude);
    const int16x8_t raise = vandq_s16(vreinterpretq_s16_u16(is_number), exponent);
    return vreinterpretq_u16_s16(vaddq_s16(vandq_s16(wide, all), raise));
  }
  HWY_INLINE void Expand(const uint8_t* codes, Scale exponent, uint16_t* to) const {
    const int8x16_t sixteen = vld1q_s8(reinterpret_cast<const int8_t*>(codes));
    vst1q_u16(to, Eight(vshll_n_s8(vget_low_s8(sixteen), 4), exponent));
    vst1q_u16(to + 8, Eight(vshll_high_n_s8(sixteen, 4), exponent));
  }
};

// 2^23 + 128 + code, whose bits follow from the code's, less that, times the scale.
struct Int8Lanes {
  static constexpr DType kType = DType::kI8;
  static constexpr int kCodes = 16;
  using Scale = float32x4_t;
  const uint16x8_t upper = vdupq_n_u16(0x4B00);
  const uint8x16_t sign = vdupq_n_u8(0x80);
  const float32x4_t offset = vdupq_n_f32(8388736.0f);

  static HWY_INLINE Scale Load(uint8_t scale) {
    return vdupq_n_f32(std::bit_cast<float>(uint32_t{scale} << 23));
  }
  HWY_INLINE uint16x8_t Four(uint16x8_t bits, Scale scale) const {
    return vreinterpretq_u16_f32(vmulq_f32(vsubq_f32(vreinterpretq_f32_u16(bits), offset), scale));
  }
  HWY_INLINE uint16x8_t Eight(uint16x8_t raised, Scale scale) const {
    return vuzp2q_u16(Four(vzip1q_u16(raised, upper), scale),
                      Four(vzip2q_u16(raised, upper), scale));
  }
  HWY_INLINE void Expand(const uint8_t* codes, Scale scale, uint16_t* to) const {
    const uint8x16_t sixteen = veorq_u8(vld1q_u8(codes), sign);
    vst1q_u16(to, Eight(vmovl_u8(vget_low_u8(sixteen)), scale));
    vst1q_u16(to + 8, Eight(vmovl_high_u8(sixteen), scale));
  }
};
#elif HWY_TARGET != HWY_SCALAR
using D16 = hn::CappedTag<int16_t, 32>;
using V16 = hn::Vec<D16>;
using D32 = hn::Repartition<int32_t, D16>;
using DF = hn::RebindToFloat<D32>;

HWY_INLINE V16 LoadCodes(const uint8_t* codes) {
  const hn::Rebind<int8_t, D16> d8;
  return hn::PromoteTo(D16(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes)));
}

// Sign, exponent and fraction move to their places in bf16, where the exponent's bias is 120 more.
struct Fp8Lanes {
  static constexpr DType kType = DType::kF8E4M3;
  static constexpr int kCodes = static_cast<int>(hn::MaxLanes(D16()));
  using Scale = V16;

  static HWY_INLINE Scale Load(uint8_t scale) {
    return hn::Set(D16(), static_cast<int16_t>((scale - 7) << 7));
  }
  HWY_INLINE void Expand(const uint8_t* codes, Scale exponent, uint16_t* to) const {
    const D16 d;
    const V16 wide = hn::ShiftLeft<4>(LoadCodes(codes));
    const V16 bits = hn::And(wide, hn::Set(d, static_cast<int16_t>(0x87F0)));
    const auto is_zero = hn::Eq(hn::And(wide, hn::Set(d, 0x07F0)), hn::Zero(d));
    hn::StoreU(hn::Add(bits, hn::IfThenZeroElse(is_zero, exponent)), d,
               reinterpret_cast<int16_t*>(to));
  }
};

struct Int8Lanes {
  static constexpr DType kType = DType::kI8;
  static constexpr int kCodes = static_cast<int>(hn::MaxLanes(D16()));
  using Scale = hn::Vec<DF>;

  static HWY_INLINE Scale Load(uint8_t scale) {
    return hn::Set(DF(), std::bit_cast<float>(uint32_t{scale} << 23));
  }
  HWY_INLINE void Expand(const uint8_t* codes, Scale scale, uint16_t* to) const {
    const D16 d;
    const hn::Half<D16> half;
    const V16 wide = LoadCodes(codes);
    const auto low = hn::ConvertTo(DF(), hn::PromoteTo(D32(), hn::LowerHalf(half, wide)));
    const auto high = hn::ConvertTo(DF(), hn::PromoteTo(D32(), hn::UpperHalf(half, wide)));
    hn::StoreU(
        hn::ConcatOdd(d, hn::BitCast(d, hn::Mul(high, scale)), hn::BitCast(d, hn::Mul(low, scale))),
        d, reinterpret_cast<int16_t*>(to));
  }
};
#else
template <DType kKvType>
struct OneLane {
  static constexpr DType kType = kKvType;
  static constexpr int kCodes = 1;
  using Scale = uint8_t;
  static Scale Load(uint8_t scale) { return scale; }
  void Expand(const uint8_t* codes, Scale scale, uint16_t* to) const {
    *to = BF16FromF32(KvValue(kType, *codes, scale));
  }
};
using Fp8Lanes = OneLane<DType::kF8E4M3>;
using Int8Lanes = OneLane<DType::kI8>;
#endif

template <class Lanes>
HWY_INLINE void ExpandAll(const uint8_t* HWY_RESTRICT codes, const uint8_t* HWY_RESTRICT scales,
                          int count, int head_dim, uint16_t* HWY_RESTRICT to) {
  constexpr uint16_t kNaN = 0x7FC0;
  const Lanes lanes;
  for (int v = 0; v < count; ++v, codes += head_dim, to += head_dim) {
    if (HWY_UNLIKELY(scales[v] == kNanKvScale)) {
      std::fill_n(to, head_dim, kNaN);
      continue;
    }
    const auto scale = lanes.Load(scales[v]);
    int i = 0;
    for (; i + 4 * Lanes::kCodes <= head_dim; i += 4 * Lanes::kCodes) {
      lanes.Expand(codes + i, scale, to + i);
      lanes.Expand(codes + i + Lanes::kCodes, scale, to + i + Lanes::kCodes);
      lanes.Expand(codes + i + 2 * Lanes::kCodes, scale, to + i + 2 * Lanes::kCodes);
      lanes.Expand(codes + i + 3 * Lanes::kCodes, scale, to + i + 3 * Lanes::kCodes);
    }
    for (; i + Lanes::kCodes <= head_dim; i += Lanes::kCodes) {
      lanes.Expand(codes + i, scale, to + i);
    }
    for (; i < head_dim; ++i) to[i] = BF16FromF32(KvValue(Lanes::kType, codes[i], scales[v]));
  }
}

void Expand(DType dtype, const uint8_t* codes, const uint8_t* scales, int count, int head_dim,
            uint16_t* to) {
  if (dtype == DType::kI8) return ExpandAll<Int8Lanes>(codes, scales, count, head_dim, to);
  ExpandAll<Fp8Lanes>(codes, scales, count, head_dim, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace talon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace talon {

HWY_EXPORT(Expand);

void ExpandVectors(DType dtype, const uint8_t* codes, const uint8_t* scales, int count,
                   int head_dim, uint16_t* to) {
  HWY_DYNAMIC_DISPATCH(Expand)(dtype, codes, scales, count, head_dim, to);
}

void ReadTokens(const KvShape& shape, KvSide side, const HostVector& first, int count, void* to) {
  const bool units = shape.in_units();
  if (!shape.quantised()) {
    if (units) return ReadUnits(shape, side, first.elements, count, to);
    std::memcpy(to, first.elements, count * shape.VectorBytes());
    return;
  }
  const uint8_t* codes = first.elements;
  std::vector<uint8_t> vectors(units ? count * shape.VectorBytes() : 0);
  if (units) {
    ReadUnits(shape, side, first.elements, count, vectors.data());
    codes = vectors.data();
  }
  ExpandVectors(shape.dtype, codes, first.scale, count, shape.head_dim, static_cast<uint16_t*>(to));
}

}  // namespace talon
#endif  // HWY_ONCE
