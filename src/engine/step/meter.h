// What a step counts and times: statistics of requests, metrics, and the measurements that the
// policy and partial verification decide by.
#ifndef TALON_ENGINE_STEP_METER_H_
#define TALON_ENGINE_STEP_METER_H_

#include <optional>
#include <span>
#include <string_view>

#include "engine/step/entry.h"
#include "engine/step/options.h"
#include "engine/step/partial_verifier.h"
#include "spec/specpv/payoff.h"

namespace talon {

// The mode of a pass, as metrics and traces name it. Where sequences differ, the costliest one.
const char* PassMode(std::span<const StepEntry> entries);

class StepMeter {
 public:
  // `partial` is not owned.
  StepMeter(const StepParts& parts, const StepOptions& options, PartialVerifier* partial)
      : parts_(parts), options_(options), partial_(partial) {}

  // A step has ended that took `seconds` and verified `tree_rows` rows.
  void Account(const StepBatch& batch, int tree_rows, double seconds);

 private:
  void CountEntry(const StepEntry& entry);
  void CountNwor(const StepEntry& entry);
  void CountDrafts(const StepEntry& entry);
  void CountStep(const StepBatch& batch, bool drafted);
  void AddSeconds(const StepBatch& batch, double seconds) const;
  // The drafts' origin, as metrics name it.
  std::string_view SourceOf(const StepEntry& entry) const;

  // Whether the step's time is representative. Steps with a trunk or a choice of blocks are not,
  // nor those in which the drafter had to catch up after a prompt or a pause, unless it was with a
  // few of many sequences.
  static bool IsOrdinary(std::span<const StepEntry> entries);
  // Whether what makes a step other than ordinary is speculation's own loss: a drafter that catches
  // up after a pause, or a choice of blocks. The first drafts of a request are not, they need the
  // prompt; a trunk is charged with its round.
  static bool IsExtra(std::span<const StepEntry> entries);
  // The kind of the pass for partial verification, if all its sequences are of one kind.
  std::optional<PassKind> KindOfPass(std::span<const StepEntry> entries, bool ordinary) const;
  // Tells partial verification what the step took.
  void TimeStep(const StepBatch& batch, int tree_rows, double seconds, bool ordinary);

  StepParts parts_;
  StepOptions options_;
  PartialVerifier* partial_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_METER_H_
