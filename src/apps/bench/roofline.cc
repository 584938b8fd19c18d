#include "apps/bench/roofline.h"

namespace talon {

double LayerFlops(const ModelConfig& model) {
  const double hidden = model.hidden_size;
  const double matrices = hidden * (model.q_size() + 2.0 * model.kv_size()) +
                          model.q_size() * hidden + 3.0 * hidden * model.intermediate_size;
  return 2 * model.num_layers * matrices;
}

double HeadFlops(const ModelConfig& model) { return 2.0 * model.hidden_size * model.vocab_size; }

double AttentionFlops(const ModelConfig& model, double keys) {
  return 4.0 * model.num_layers * model.q_size() * keys;
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
