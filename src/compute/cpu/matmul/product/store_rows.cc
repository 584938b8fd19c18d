#include "compute/cpu/matmul/product/store_rows.h"

// Arm machines with SVE run NEON, as in elementwise.cc.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/matmul/product/store_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace talon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector of a row, complete.
template <class D>
HWY_INLINE hn::Vec<D> Complete(D d, const StoredRows& rows, const float* from, int col,
                               const float* to) {
  auto value = hn::LoadU(d, from + col);
  if (rows.bias != nullptr) value = hn::Add(value, hn::LoadU(d, rows.bias + col));
  return rows.add ? hn::Add(hn::LoadU(d, to + col), value) : value;
}

void StoreAll(const StoredRows& rows) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int row = 0; row < rows.rows; ++row) {
    const float* from = rows.from + row * rows.from_stride;
    float* to = rows.to + row * rows.to_stride;
    const bool stream = rows.stream && reinterpret_cast<uintptr_t>(to) % 64 == 0;
    int col = 0;
    for (; col + lanes <= rows.cols; col += lanes) {
      const auto value = Complete(d, rows, from, col, to);
      stream ? hn::Stream(value, d, to + col) : hn::StoreU(value, d, to + col);
    }
    for (; col < rows.cols; ++col) {
      hn::StoreU(Complete(one, rows, from, col, to), one, to + col);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace talon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace talon {
namespace {

HWY_EXPORT(StoreAll);

}  // namespace

void StoreRows(const StoredRows& rows) { HWY_DYNAMIC_DISPATCH(StoreAll)(rows); }

void FlushStreams() { hwy::FlushStream(); }

}  // namespace talon
#endif  // HWY_ONCE
