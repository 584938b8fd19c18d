// What the passes of a target and of its draft model take, as a small table: a machine on paper.
#ifndef TALON_APPS_BENCH_MODELLED_PASS_COSTS_H_
#define TALON_APPS_BENCH_MODELLED_PASS_COSTS_H_

#include <string>

#include "base/json_fwd.h"
#include "base/status.h"
#include "compute/pass_plan.h"
#include "spec/policy/verify_curve.h"

namespace talon {

class PassCosts {
 public:
  // {"points": [{"rows", "base", "per_token"}, ..], "view_key": 1.5, "scored_key": 1e-9,
  // "stored_row": 4e-6}; `what` names it in messages.
  static Result<PassCosts> Parse(const Json& json, const std::string& what);

  // Seconds: all rows together, and for each sequence the keys that it reads and scores.
  double Seconds(const PassPlan& plan, int block_size) const;

 private:
  VerifyCurve curve_;
  double view_key_ = 1;    // a key of a partial view, against one of the whole prefix
  double scored_key_ = 0;  // seconds for each key that is scored, and row of queries
  // A row of a pass that has rows without outputs, which only stores keys, as heads do for the rows
  // that they missed; 0: such a pass costs what others do.
  double stored_row_ = 0;
};

struct MachineCosts {
  PassCosts target;  // with the rest of a step
  PassCosts draft;

  // A file {"target": .., "draft": ..}.
  static Result<MachineCosts> Load(const std::string& path);
};

}  // namespace talon

#endif  // TALON_APPS_BENCH_MODELLED_PASS_COSTS_H_
