#include "compute/cpu/cpu_token_ops.h"

#include "base/check.h"
#include "compute/cpu/cpu_pass.h"
#include "compute/cpu/elementwise.h"

namespace talon {

void CpuTokenOps::Argmax(MatrixView x, std::span<int32_t> out) {
  TALON_CHECK(static_cast<int>(out.size()) == x.rows);
  ForRows(*pool_, x.rows, x.cols * 0.2,
          [&](int64_t r) { out[r] = ArgmaxRow(RowOf(x, r), x.cols); });
}

void CpuTokenOps::TopK(MatrixView x, int k, std::span<TopKEntry> out) {
  TALON_CHECK(k <= x.cols && static_cast<int64_t>(out.size()) == int64_t{x.rows} * k);
  ForRows(*pool_, x.rows, x.cols * 1.0,
          [&](int64_t r) { TopKRow(RowOf(x, r), x.cols, out.subspan(r * k, k)); });
}

}  // namespace talon
