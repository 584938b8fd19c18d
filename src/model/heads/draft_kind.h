// What a draft directory holds: an EAGLE-3 head or a model of its own.
#ifndef TALON_MODEL_HEADS_DRAFT_KIND_H_
#define TALON_MODEL_HEADS_DRAFT_KIND_H_

#include <string>

#include "base/status.h"

namespace talon {

// By config.json and, where that does not say, by the names of the tensors. Loads no weights.
Result<bool> IsEagle3Head(const std::string& dir);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_DRAFT_KIND_H_
