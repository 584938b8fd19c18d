// What `talon doctor` can say of a draft before it runs: its facts, and a checklist made of them.
#ifndef TALON_APPS_DOCTOR_CHECKS_H_
#define TALON_APPS_DOCTOR_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "model/rope.h"
#include "setup/config.h"
#include "setup/loader.h"
#include "spec/drafter.h"

namespace talon {

// A draft and the target it belongs to.
struct DraftFacts {
  std::string kind;  // the drafter's name: EAGLE3, STANDALONE
  std::string dir;
  int target_vocab = 0;       // V
  int draft_vocab = 0;        // Vd
  std::vector<bool> covered;  // [V] tokens that it can draft
  std::vector<int> capture_layers;
  std::string capture_source;  // where the list is from
  int target_layers = 0;
  int draft_layers = 1;
  int target_hidden = 0;
  int draft_hidden = 0;
  int target_positions = 0;
  int draft_positions = 0;
  int max_length = 0;  // longest sequence of the settings
  RopeKind draft_rope = RopeKind::kDefault;
  bool same_tokenizer = true;  // as far as both have one
  std::string target_types;    // types of the tensors as stored: "bf16", "bf16 and f32"
  std::string draft_types;
  size_t target_weight_bytes = 0;
  size_t draft_weight_bytes = 0;
  size_t draft_kv_bytes = 0;  // for all sequences
};

enum class Severity { kOk, kWarning, kError };
const char* VerdictName(Severity verdict);  // "ok", ...

struct CheckLine {
  Severity verdict = Severity::kOk;
  std::string subject;
  std::string text;
};

// Loads the draft once, for a look. Every mismatch with the target is an error.
Result<DraftFacts> ExamineDraft(const LoadedModel& model, const Config& config,
                                const std::string& kind, const std::string& dir);

// `budget` is the largest tree of the settings.
std::vector<CheckLine> CheckDraft(const DraftFacts& facts, const Config& config,
                                  const DraftBudget& budget);

Json FactsJson(const DraftFacts& facts, const std::vector<CheckLine>& lines);

}  // namespace talon

#endif  // TALON_APPS_DOCTOR_CHECKS_H_
