// What a model's pass allows. Checked before anything is computed or written.
#ifndef TALON_MODEL_PASS_LIMITS_H_
#define TALON_MODEL_PASS_LIMITS_H_

#include "base/status.h"
#include "compute/backend.h"
#include "compute/pass_plan.h"

namespace talon {

struct PassLimits {
  const char* what = "";  // for messages: "decoder"
  int max_rows = 0;
  int max_output_rows = 0;
  int vocab_size = 0;
  int max_position = 0;  // positions are below it
  int num_layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
};

// Fails if the plan exceeds a limit or does not fit the cache: too many rows, a token past the
// vocabulary, a position past the limit, a slot past the pool.
Status CheckPass(const PassPlan& plan, const KvShape& kv, const PassLimits& limits);

}  // namespace talon

#endif  // TALON_MODEL_PASS_LIMITS_H_
