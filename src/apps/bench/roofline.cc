#include "apps/bench/roofline.h"

#include <algorithm>

namespace talon {

double LayerFlops(const ModelConfig& model) {
  const double hidden = model.hidden_size;
  double matrices = 0;
  for (int layer = 0; layer < model.num_layers; ++layer) {
    matrices += hidden * (2.0 * model.q_size() + 2.0 * model.kv_size()) +
                3.0 * hidden * model.ActiveMlpSize(layer);
    if (model.IsSparse(layer)) matrices += hidden * model.experts.count;  // the router
  }
  return 2 * matrices;
}

double HeadFlops(const ModelConfig& model) { return 2.0 * model.hidden_size * model.vocab_size; }

double AttentionFlops(const ModelConfig& model, double keys) {
  double seen = 0;
  for (int layer = 0; layer < model.num_layers; ++layer) {
    const double window = model.WindowOf(layer);
    seen += window > 0 ? std::min(window, keys) : keys;
  }
  return 4.0 * model.q_size() * seen;
}

Work WorkOf(const ModelConfig& model, const PassSums& sums) {
  if (sums.passes == 0) return {};
  const auto rows = static_cast<double>(sums.rows);
  const auto prefix = static_cast<double>(sums.prefix_tokens);
  const double keys = prefix / static_cast<double>(sums.passes);
  return {.weight_bytes = sums.weight_bytes * static_cast<double>(sums.passes),
          .kv_bytes = sums.kv_bytes_per_token * prefix,
          .flops = rows * (LayerFlops(model) + HeadFlops(model) + AttentionFlops(model, keys))};
}

Bound BoundOf(const Work& work, const Peaks& peaks) {
  return {.memory_seconds = work.bytes() / peaks.bytes_per_second,
          .compute_seconds = work.flops / peaks.flops_per_second};
}

}  // namespace talon
