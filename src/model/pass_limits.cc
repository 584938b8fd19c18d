#include "model/pass_limits.h"

#include "base/valid_values.h"

namespace talon {
namespace {

Status CheckRow(const PassPlan& plan, int row, const KvShape& kv, const PassLimits& limits) {
  const auto i = static_cast<size_t>(row);
  if (plan.tokens[i] < 0 || plan.tokens[i] >= limits.vocab_size) {
    return OutOfRange("{}: row {} has token {}, vocabulary {}", limits.what, row, plan.tokens[i],
                      limits.vocab_size);
  }
  if (plan.positions[i] < 0 || plan.positions[i] >= limits.max_position) {
    return OutOfRange("{}: row {} has position {}, limit {}", limits.what, row, plan.positions[i],
                      limits.max_position);
  }
  const int64_t slots = static_cast<int64_t>(kv.num_blocks) * kv.block_size;
  if (plan.slots[i] < -1 || plan.slots[i] >= slots) {
    return OutOfRange("{}: row {} has slot {}, the cache has {}", limits.what, row, plan.slots[i],
                      slots);
  }
  return OkStatus();
}

Status CheckSizes(const PassPlan& plan, const KvShape& kv, const PassLimits& limits) {
  const auto outputs = static_cast<int>(plan.output_rows.size());
  const Range rows{1, static_cast<double>(limits.max_rows)};
  TALON_RETURN_IF_ERROR(
      CheckRange("rows in a pass", plan.num_rows(), rows).WithContext(limits.what));
  if (outputs > limits.max_output_rows) {
    return InvalidArgument("{}: logits of {} rows wanted, limit {}", limits.what, outputs,
                           limits.max_output_rows);
  }
  const size_t size = plan.tokens.size();
  if (plan.positions.size() != size || plan.slots.size() != size ||
      plan.prefix_len.size() != size) {
    return InvalidArgument("{}: plan of {} tokens has {} positions, {} slots, {} prefixes",
                           limits.what, size, plan.positions.size(), plan.slots.size(),
                           plan.prefix_len.size());
  }
  if (plan.feature_rows.size() > size) {
    return InvalidArgument("{}: features of {} rows wanted, the pass has {}", limits.what,
                           plan.feature_rows.size(), size);
  }
  if (kv.num_layers != limits.num_layers || kv.kv_heads != limits.kv_heads ||
      kv.head_dim != limits.head_dim) {
    return InvalidArgument("{}: cache of {} layers x {} heads x {}, the model has {} x {} x {}",
                           limits.what, kv.num_layers, kv.kv_heads, kv.head_dim, limits.num_layers,
                           limits.kv_heads, limits.head_dim);
  }
  return OkStatus();
}

Status CheckStaging(const PassPlan& plan, const KvShape& kv, const PassLimits& limits) {
  for (int s = 0; s < plan.num_sequences(); ++s) {
    const int last = plan.sequence_rows[static_cast<size_t>(s) + 1] - 1;
    if (const int place = plan.PlaceOfRow(s, last); place < 0 && ~place >= kv.staging_rows) {
      return OutOfRange("{}: row {} is staged at {}, the cache has {} staging rows", limits.what,
                        last, ~place, kv.staging_rows);
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckPass(const PassPlan& plan, const KvShape& kv, const PassLimits& limits) {
  TALON_RETURN_IF_ERROR(CheckSizes(plan, kv, limits));
  const int rows = plan.num_rows();
  for (int row = 0; row < rows; ++row) TALON_RETURN_IF_ERROR(CheckRow(plan, row, kv, limits));
  for (const auto* wanted : {&plan.output_rows, &plan.feature_rows}) {
    for (const int32_t row : *wanted) {
      if (row >= 0 && row < rows) continue;
      return OutOfRange("{}: {} of row {} wanted, the pass has {}", limits.what,
                        wanted == &plan.output_rows ? "logits" : "features", row, rows);
    }
  }
  return CheckStaging(plan, kv, limits);
}

}  // namespace talon
