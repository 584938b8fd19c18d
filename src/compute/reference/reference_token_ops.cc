#include "compute/reference/reference_token_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace talon {
namespace {

float* RowOf(const MatrixView& x, int row) { return x.data + row * x.stride; }

// log-softmax of a row; NaN throughout if the row holds NaN or +inf.
std::vector<float> LogSoftmax(const float* x, int cols) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < cols; ++i) largest = std::max(largest, double{x[i]});
  double sum = 0;
  for (int i = 0; i < cols; ++i) sum += std::exp(x[i] - largest);
  std::vector<float> out(cols);
  for (int i = 0; i < cols; ++i) {
    out[i] = static_cast<float>(std::isnan(sum) ? sum : x[i] - largest - std::log(sum));
  }
  return out;
}

}  // namespace

void ReferenceTokenOps::Argmax(MatrixView x, std::span<int32_t> out) {
  TALON_CHECK(static_cast<int>(out.size()) == x.rows);
  for (int r = 0; r < x.rows; ++r) {
    int best = -1;
    for (int i = 0; i < x.cols; ++i) {
      if (std::isnan(RowOf(x, r)[i])) continue;
      if (best < 0 || RowOf(x, r)[i] > RowOf(x, r)[best]) best = i;
    }
    out[r] = std::max(best, 0);
  }
}

void ReferenceTokenOps::TopK(MatrixView x, int k, std::span<TopKEntry> out) {
  TALON_CHECK(k <= x.cols && static_cast<int>(out.size()) == x.rows * k);
  for (int r = 0; r < x.rows; ++r) {
    const float* row = RowOf(x, r);
    const std::vector<float> log_probs = LogSoftmax(row, x.cols);
    std::vector<int32_t> order(x.cols);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [row](int32_t a, int32_t b) {
      return row[a] > row[b] || (std::isnan(row[b]) && !std::isnan(row[a]));
    });
    for (int i = 0; i < k; ++i) out[r * k + i] = {order[i], log_probs[order[i]]};
  }
}

}  // namespace talon
