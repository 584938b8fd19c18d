// What a pass costs: seconds by number of rows and length of context, measured on this machine.
//
// One sequence with T rows over C tokens takes base(T) + per_token(T) * C: weights and activations,
// then attention, which reads the prefix once. A batch of n such sequences takes
// base(n * T) + n * per_token(T) * C. The verify curve is c(T) = Seconds(T) / Seconds(1).
#ifndef TALON_SPEC_POLICY_VERIFY_CURVE_H_
#define TALON_SPEC_POLICY_VERIFY_CURVE_H_

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "compute/backend.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "spec/policy/policy.h"

namespace talon {

class VerifyCurve {
 public:
  struct Point {
    int rows = 0;
    double base = 0;       // seconds
    double per_token = 0;  // seconds per token of context
    double experts = 0;    // read in a sparse layer by rows of different tokens; 0: not counted
  };

  VerifyCurve() = default;
  // REQUIRES: ascending rows, the first being 1.
  explicit VerifyCurve(std::vector<Point> points) : points_(std::move(points)) {}

  bool empty() const { return points_.empty(); }
  const std::vector<Point>& points() const { return points_; }

  // A pass with `nodes` rows for each sequence of the batch. Between points linear, beyond the last
  // one proportional.
  double Seconds(const StepShape& shape, double nodes) const;
  double Ratio(const StepShape& shape, double nodes) const {
    return Seconds(shape, nodes) / Seconds(shape, 1);
  }

  // Base and slope for so many rows, as above.
  Point At(double rows) const;

  static Result<VerifyCurve> Load(const std::string& path);
  // The same from what the file says; `what` names it in messages.
  static Result<VerifyCurve> Parse(const Json& json, const std::string& what);
  Status Save(const std::string& path) const;

 private:
  std::vector<Point> points_;
};

// The fastest passes of a number of rows, over a short and a longer context.
struct PassTimes {
  int rows = 0;
  double shorter = std::numeric_limits<double>::max();  // seconds
  double longer = std::numeric_limits<double>::max();
  double experts = 0;  // VerifyCurve::Point
};

// How many rows to time after these, at most `most`; 0: enough, more cost in proportion.
int NextCurveRows(std::span<const PassTimes> times, int most);

// The curve through measured times, by rows, for contexts of so many tokens. Fewer rows never cost
// more, and twice as many at most twice as much: where they seem to, their passes were disturbed.
// REQUIRES: `times` is not empty.
VerifyCurve FitVerifyCurve(std::vector<PassTimes> times, int shorter, int longer);

// Times passes of 1, 2, 4, ... rows, at most `max_rows`, with a short and a longer context. Uses
// and frees blocks of `kv`; their content does not matter. In rounds over all sizes, so that what
// disturbs the machine for a moment spoils none of them: until a round finds no pass faster, as
// long as the start of the program is not held up (the policy corrects the curve by what steps
// take). Then passes of more rows, at most `batch_rows`, as long as rows cost less than in
// proportion: on a GPU those of a batch do.
Result<VerifyCurve> MeasureVerifyCurve(Backend* backend, Decoder* target, KvCache* kv, int max_rows,
                                       int batch_rows);

// Seconds of one pass of `rows` rows over `context` tokens: the fastest of `repeats` after one that
// does not count, or with 0 repeats that one. Up to 128 rows are a chain, more are several of them
// over the same tokens.
Result<double> TimeVerifyPass(Backend* backend, Decoder* target, KvCache* kv, int rows, int context,
                              int repeats);

}  // namespace talon

#endif  // TALON_SPEC_POLICY_VERIFY_CURVE_H_
