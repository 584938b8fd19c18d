// The text of `talon doctor`'s probe: contexts of any length that end where a model would go on.
#ifndef TALON_APPS_DOCTOR_TEXT_H_
#define TALON_APPS_DOCTOR_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "setup/config.h"
#include "setup/loader.h"

namespace talon {

struct ProbeText {
  std::string origin;                           // in words
  bool random = false;                          // begun by random token ids: no tokenizer
  std::vector<int32_t> begin;                   // what the tokenizer puts in front of a text
  std::vector<std::vector<int32_t>> documents;  // at least one, none empty

  // At most `length` tokens that end with document `last`. The documents before it fill up, again
  // and again, so contexts of all lengths have the same end.
  std::vector<int32_t> Context(int last, int length) const;
};

// The prompts of a file or, without one, what the model itself writes when it is given a few words,
// enough for a context of `tokens`, up to a limit that keeps the wait short. The model must be
// loaded for kSampledDocuments sequences.
constexpr int kSampledDocuments = 8;
Result<ProbeText> MakeProbeText(LoadedModel* model, const Config& config,
                                const std::string& prompts, int tokens);

}  // namespace talon

#endif  // TALON_APPS_DOCTOR_TEXT_H_
