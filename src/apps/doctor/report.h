// What `talon doctor` prints, in 80 columns.
#ifndef TALON_APPS_DOCTOR_REPORT_H_
#define TALON_APPS_DOCTOR_REPORT_H_

#include <string>
#include <vector>

#include "apps/doctor/advice.h"
#include "apps/doctor/checks.h"
#include "apps/doctor/probe.h"

namespace talon {

std::string ChecklistText(const std::vector<CheckLine>& lines);
// What only the run could tell: coverage of the text, identity, trust in the timings, fallbacks.
std::vector<CheckLine> CheckProbe(const ProbeFigures& figures);
std::string ProbeTables(const ProbeFigures& figures);
std::string AdviceText(const Advice& advice);

}  // namespace talon

#endif  // TALON_APPS_DOCTOR_REPORT_H_
