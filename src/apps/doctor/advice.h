// What limits a draft, in words chosen by the probe's figures.
#ifndef TALON_APPS_DOCTOR_ADVICE_H_
#define TALON_APPS_DOCTOR_ADVICE_H_

#include <string>
#include <vector>

#include "apps/doctor/probe.h"
#include "spec/drafter.h"

namespace talon {

// What the advice may propose to change.
struct DraftSettings {
  std::string kind;  // the drafter's name: EAGLE3, STANDALONE
  DraftBudget budget;
  int draft_vocab = 0;
  int window = 0;
  std::string draft_weights = "auto";
};

struct Advice {
  std::string limit;                // limit of the first: "verification", "drafting", ... or "none"
  std::vector<std::string> limits;  // one or two sentences, what costs most first
  std::string next;                 // the setting or the work to try next
};

// REQUIRES: at least one context.
Advice Advise(const ProbeFigures& figures, const DraftSettings& settings);

}  // namespace talon

#endif  // TALON_APPS_DOCTOR_ADVICE_H_
