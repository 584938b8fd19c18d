// The tables of `talon bench longcontext`, 80 columns wide, from its JSON (longcontext_figures.h).
#ifndef TALON_APPS_BENCH_LONGCONTEXT_REPORT_H_
#define TALON_APPS_BENCH_LONGCONTEXT_REPORT_H_

#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace talon {

std::string ContextReport(const Json& context);
std::string AgreementReport(const Json& agreement);
// The variants with a budget of 2048 tokens or, if there are none, with the largest one.
std::string FlatnessReport(const Json& flatness);
// At the largest context.
std::string MemoryReport(const Json& memory);
std::string RecallReport(const Json& recall);
// `peaks`: bandwidth, matrix peak. Of the variants with partial steps, the fastest of each mode.
std::string RooflineReport(const Json& roofline, const Json& context, const Json& peaks);

// One line for each variant that had to give the same tokens as full decoding and did not. `recall`
// may be null.
std::vector<std::string> Differences(const Json& contexts, const Json& recall);

}  // namespace talon

#endif  // TALON_APPS_BENCH_LONGCONTEXT_REPORT_H_
