// Float kernels for any processor: weights f32, f16 or bf16, activations and arithmetic f32, one
// fused multiply-add per input in ascending order. A panel is wide enough that a single row has
// several independent chains in flight.

// Their vectors have no fixed size, so they cannot be held in arrays; NEON serves those machines.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/matmul/kernels_float.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "compute/cpu/matmul/kernels_table.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace talon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kWidth = 32;
using Floats = hn::CappedTag<float, 16>;
using FloatVector = hn::Vec<Floats>;
constexpr int kLanes = static_cast<int>(HWY_MIN(HWY_LANES(float), 16));
// Half of the registers or less hold accumulators.
constexpr int kMaxAccumulators = HWY_TARGET == HWY_NEON || kLanes == 16 ? 16 : 8;

HWY_INLINE FloatVector LoadWeights(Floats d, const float* from) { return hn::LoadU(d, from); }
template <typename Half>
HWY_INLINE FloatVector LoadWeights(Floats d, const Half* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Half, Floats>(), from));
}

// Rows kRows and the outputs [0, kVectors * kLanes) of the panel.
template <int kRows, int kVectors, typename W>
HWY_INLINE void Columns(const TileArgs& args, int first_output) {
  const Floats d;
  const auto* from = static_cast<const float*>(args.from) + first_output;
  auto* to = static_cast<float*>(args.to) + first_output;
  FloatVector acc[kRows][kVectors];
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::LoadU(d, from + r * kWidth + v * kLanes);
    }
  }
  const auto* x = static_cast<const float*>(args.x);
  const auto* w = static_cast<const W*>(args.panel) + first_output;
  const auto* next = static_cast<const uint8_t*>(args.next) + first_output * sizeof(W);
  const int64_t next_step = args.next_step;
  for (int64_t k = 0; k < args.groups; ++k, x += kRows, w += kWidth) {
    __builtin_prefetch(next, 0, 2);
    next += next_step;
    FloatVector weights[kVectors];
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) weights[v] = LoadWeights(d, w + v * kLanes);
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const FloatVector row = hn::Set(d, x[r]);
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(row, weights[v], acc[r][v]);
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], d, to + r * kWidth + v * kLanes);
    }
  }
}

// The panel is done in as few parts as the accumulators allow.
constexpr int VectorsThatFit(int rows) {
  int vectors = kWidth / kLanes;
  while (vectors > 1 && rows * vectors > kMaxAccumulators) vectors /= 2;
  return vectors;
}

template <int kRows, typename W>
HWY_INLINE void Rows(const TileArgs& args) {
  constexpr int kFit = VectorsThatFit(kRows);
  for (int j = 0; j < kWidth; j += kFit * kLanes) Columns<kRows, kFit, W>(args, j);
}

template <typename W>
HWY_INLINE void Tile(const TileArgs& args) {
  switch (args.rows) {
    case 1:
      return Rows<1, W>(args);
    case 2:
      return Rows<2, W>(args);
    case 3:
      return Rows<3, W>(args);
    default:
      return Rows<4, W>(args);
  }
}

void TileF32(const TileArgs& args) { Tile<float>(args); }
void TileF16(const TileArgs& args) { Tile<hwy::float16_t>(args); }
void TileBF16(const TileArgs& args) { Tile<hwy::bfloat16_t>(args); }

int64_t Burn(int64_t iterations) {
  constexpr int kChains = kMaxAccumulators + kMaxAccumulators / 4;  // to hide every latency
  const Floats d;
  static float data[8 * kLanes + 8] = {};
  const float* from = data;
  FloatVector acc[kChains];
  TALON_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Zero(d);
  for (int64_t n = 0; n < iterations; ++n) {
    asm volatile("" : "+r"(from));  // else the loads leave the loop
    FloatVector x[4];
    TALON_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = hn::LoadU(d, from + i * kLanes);
    TALON_UNROLL
    for (int i = 0; i < kChains; ++i) {
      acc[i] = hn::MulAdd(x[i % 4], hn::Set(d, from[4 * kLanes + i / 4]), acc[i]);
    }
  }
  TALON_UNROLL
  for (int i = 1; i < kChains; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  // Never negative, but the compiler must compute the sums to know.
  return hn::GetLane(acc[0]) < 0 ? 0 : iterations * kChains * kLanes * 2;
}

}  // namespace HWY_NAMESPACE
}  // namespace talon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace talon {
namespace {

HWY_EXPORT(TileF32);
HWY_EXPORT(TileF16);
HWY_EXPORT(TileBF16);
HWY_EXPORT(Burn);

void CallTileF32(const TileArgs& args) { HWY_DYNAMIC_DISPATCH(TileF32)(args); }
void CallTileF16(const TileArgs& args) { HWY_DYNAMIC_DISPATCH(TileF16)(args); }
void CallTileBF16(const TileArgs& args) { HWY_DYNAMIC_DISPATCH(TileBF16)(args); }
int64_t CallBurn(int64_t iterations) { return HWY_DYNAMIC_DISPATCH(Burn)(iterations); }

constexpr MatrixKernel MakeKernel(const char* name, DType weight_type,
                                  void (*tile)(const TileArgs&)) {
  return {.name = name,
          .weight_type = weight_type,
          .activation_type = DType::kF32,
          .sum_type = DType::kF32,
          .width = 32,
          .group = 1,
          .x_group = 1,
          .panel_group_bytes = weight_type == DType::kF32 ? 32 * 4 : 32 * 2,
          .max_rows = 4,
          .row_unit = 1,
          .offset_activation = false,
          .tile = tile,
          .burn = CallBurn};
}

}  // namespace

const MatrixKernel& FloatKernel(DType weight_type) {
  static const MatrixKernel f32 = MakeKernel("f32 fma", DType::kF32, CallTileF32);
  static const MatrixKernel f16 = MakeKernel("f16 fma", DType::kF16, CallTileF16);
  static const MatrixKernel bf16 = MakeKernel("bf16 fma", DType::kBF16, CallTileBF16);
  if (weight_type == DType::kF16) return f16;
  return weight_type == DType::kBF16 ? bf16 : f32;
}

}  // namespace talon
#endif  // HWY_ONCE
