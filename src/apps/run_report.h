// What a generation did, as a table for people and as JSON for programs.
#ifndef TALON_APPS_RUN_REPORT_H_
#define TALON_APPS_RUN_REPORT_H_

#include <string>

#include "apps/loader.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace talon {

// Adds up what requests did; the sum is lossy if one of them is.
void AddStats(const RequestStats& more, RequestStats* sum);

std::string ReportTable(const GenerateResult& result, const LoadedModel& model, Engine* engine);
Json ReportJson(const GenerateResult& result, const LoadedModel& model, Engine* engine);

}  // namespace talon

#endif  // TALON_APPS_RUN_REPORT_H_
