// What a generation did, as a table for people and as JSON for programs.
#ifndef TALON_APPS_COMMON_RUN_REPORT_H_
#define TALON_APPS_COMMON_RUN_REPORT_H_

#include <string>

#include "apps/common/table.h"
#include "base/json_fwd.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "observe/metrics.h"
#include "setup/loader.h"

namespace talon {

// Adds up what requests did; the sum is lossy if one of them is.
void AddStats(const RequestStats& more, RequestStats* sum);

// The parts of a report that do not depend on where the model runs.
void AddGeneration(const GenerateResult& result, Table* table);
void AddAcceptance(const RequestStats& stats, const std::string& drafter, Table* table);
Json GenerationJson(const GenerateResult& result);
Json CountersJson(const Metrics& metrics);

std::string ReportTable(const GenerateResult& result, const LoadedModel& model, Engine* engine);
Json ReportJson(const GenerateResult& result, const LoadedModel& model, Engine* engine);

}  // namespace talon

#endif  // TALON_APPS_COMMON_RUN_REPORT_H_
