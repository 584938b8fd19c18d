#include "apps/bench/modelled/pass_costs.h"

#include "base/file.h"
#include "base/json.h"

namespace talon {

Result<PassCosts> PassCosts::Parse(const Json& json, const std::string& what) {
  PassCosts costs;
  TALON_ASSIGN_OR_RETURN(costs.curve_, VerifyCurve::Parse(json, what));
  try {
    costs.view_key_ = json.value("view_key", 1.0);
    costs.scored_key_ = json.value("scored_key", 0.0);
    costs.stored_row_ = json.value("stored_row", 0.0);
  } catch (const Json::exception& error) {
    return InvalidArgument("{}: not costs of passes: {}", what, error.what());
  }
  return costs;
}

double PassCosts::Seconds(const PassPlan& plan, int block_size) const {
  const int rows = plan.num_rows();
  if (stored_row_ > 0 && static_cast<int>(plan.output_rows.size()) < rows) {
    return stored_row_ * rows;
  }
  double seconds = curve_.At(rows).base;
  for (int i = 0; i < plan.num_sequences(); ++i) {
    const int first = plan.sequence_rows[i];
    const double key = curve_.At(plan.sequence_rows[i + 1] - first).per_token;
    seconds += key * plan.prefix_len[first] * (plan.NumLists(i) > 1 ? view_key_ : 1);
  }
  for (const ScoreRequest& request : plan.scores) {
    const double keys = static_cast<double>(request.num_blocks) * block_size;
    seconds += scored_key_ * keys * (request.row_end - request.row_begin);
  }
  return seconds;
}

Result<MachineCosts> MachineCosts::Load(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  const Json none = Json::object();
  const auto part = [&](const char* name) {
    const bool found = json.is_object() && json.contains(name);
    return PassCosts::Parse(found ? json[name] : none, path + ": " + name);
  };
  MachineCosts costs;
  TALON_ASSIGN_OR_RETURN(costs.target, part("target"));
  TALON_ASSIGN_OR_RETURN(costs.draft, part("draft"));
  return costs;
}

}  // namespace talon
