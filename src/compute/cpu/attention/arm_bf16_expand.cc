// Units of quantised K and V (kv_codes.h) as bf16, for attention with bfmmla (arm_bf16-inl.h).
// Codes lie in the order of the result, so that only scales have to find their lanes.
#include "compute/cpu/attention/arm_bf16-inl.h"
#include "compute/kv/kv_codes.h"

namespace talon::arm_bf16 {
namespace {

constexpr int kGroups = 8;  // the order of tokens comes round after these

// Sign, exponent and fraction move to their places in bf16, where the exponent's bias is 120 more.
struct Fp8Codes {
  static constexpr DType kType = DType::kF8E4M3;
  using Scales = int16x8_t;

  static Scales Load(uint8x8_t scales) {
    const int16x8_t wide = vreinterpretq_s16_u16(vmovl_u8(scales));
    return vshlq_n_s16(vsubq_s16(wide, vdupq_n_s16(7)), 7);
  }
  // Two groups, each with its scales.
  static uint16x8x2_t Expand(int8x16_t codes, Scales first, Scales second) {
    return {Eight(vshll_n_s8(vget_low_s8(codes), 4), first),
            Eight(vshll_high_n_s8(codes, 4), second)};
  }

 private:
  static uint16x8_t Eight(int16x8_t wide, Scales exponents) {
    const uint16x8_t is_number = vtstq_s16(wide, vdupq_n_s16(0x07F0));
    const int16x8_t raise = vandq_s16(vreinterpretq_s16_u16(is_number), exponents);
    const int16x8_t bits = vandq_s16(wide, vdupq_n_s16(static_cast<int16_t>(0x87F0)));
    return vreinterpretq_u16_s16(vaddq_s16(bits, raise));
  }
};

// 2^23 + 128 + code, whose bits follow from the code's, less that, times the scale.
struct Int8Codes {
  static constexpr DType kType = DType::kI8;
  struct Scales {
    float32x4_t low;
    float32x4_t high;
  };

  static Scales Load(uint8x8_t scales) {
    const uint16x8_t wide = vmovl_u8(scales);
    return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(wide)), 23)),
            vreinterpretq_f32_u32(vshlq_n_u32(vmovl_high_u16(wide), 23))};
  }
  static uint16x8x2_t Expand(int8x16_t codes, const Scales& first, const Scales& second) {
    const uint8x16_t raised = veorq_u8(vreinterpretq_u8_s8(codes), vdupq_n_u8(0x80));
    return {Eight(vmovl_u8(vget_low_u8(raised)), first), Eight(vmovl_high_u8(raised), second)};
  }

 private:
  static uint16x8_t Four(uint16x8_t bits, float32x4_t scale) {
    const float32x4_t offset = vdupq_n_f32(8388736.0f);
    return vreinterpretq_u16_f32(vmulq_f32(vsubq_f32(vreinterpretq_f32_u16(bits), offset), scale));
  }
  static uint16x8_t Eight(uint16x8_t raised, const Scales& scales) {
    const uint16x8_t upper = vdupq_n_u16(0x4B00);
    return vuzp2q_u16(Four(vzip1q_u16(raised, upper), scales.low),
                      Four(vzip2q_u16(raised, upper), scales.high));
  }
};

// The tokens of group g's codes.
uint8x8_t TokensOf(KvSide side, int g) {
  uint8_t tokens[kGroup];
  for (int i = 0; i < kGroup; ++i) {
    tokens[i] = static_cast<uint8_t>(side == KvSide::kKeys ? g % kStripe * 2 + i / 4
                                                           : kDepthKeys[g / kStripe][i % 4]);
  }
  return vld1_u8(tokens);
}

// The tokens' scales come round after `kPeriod` groups, each for `kRun` groups.
template <class Codes, int kPeriod, int kRun>
void ExpandGroups(const int8_t* codes, const typename Codes::Scales* scales, int count,
                  uint16_t* out) {
  for (int i = 0; i < count; i += kGroups * kGroup) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; g += 2) {
      const int at = i + g * kGroup;
      const uint16x8x2_t two = Codes::Expand(vld1q_s8(codes + at), scales[g / kRun % kPeriod],
                                             scales[(g + 1) / kRun % kPeriod]);
      vst1q_u16(out + at, two.val[0]);
      vst1q_u16(out + at + kGroup, two.val[1]);
    }
  }
}

// A unit with a vector that is not finite.
void ExpandSlowly(DType dtype, KvSide side, const uint8_t* codes, const uint8_t* scales, int count,
                  uint16_t* out) {
  for (int i = 0; i < count; ++i) {
    uint8_t tokens[kGroup];
    vst1_u8(tokens, TokensOf(side, i / kGroup % kGroups));
    out[i] = BF16FromF32(KvValue(dtype, codes[i], scales[tokens[i % kGroup]]));
  }
}

template <class Codes>
void Expand(KvSide side, const uint8_t* codes, const uint8_t* scales, int count, uint16_t* out) {
  const uint8x8_t all = vld1_u8(scales);
  if (vmaxv_u8(all) == kNanKvScale) {
    return ExpandSlowly(Codes::kType, side, codes, scales, count, out);
  }
  const auto* numbers = reinterpret_cast<const int8_t*>(codes);
  const auto scales_of = [&](int g) { return Codes::Load(vtbl1_u8(all, TokensOf(side, g))); };
  if (side == KvSide::kKeys) {
    const typename Codes::Scales each[] = {scales_of(0), scales_of(1), scales_of(2), scales_of(3)};
    ExpandGroups<Codes, kStripe, 1>(numbers, each, count, out);
  } else {
    const typename Codes::Scales each[] = {scales_of(0), scales_of(kStripe)};
    ExpandGroups<Codes, 2, kStripe>(numbers, each, count, out);
  }
}

}  // namespace

void ExpandUnit(DType dtype, KvSide side, const uint8_t* codes, const uint8_t* scales, int head_dim,
                uint16_t* out) {
  const int count = kUnitKeys * head_dim;
  if (dtype == DType::kI8) return Expand<Int8Codes>(side, codes, scales, count, out);
  Expand<Fp8Codes>(side, codes, scales, count, out);
}

}  // namespace talon::arm_bf16
