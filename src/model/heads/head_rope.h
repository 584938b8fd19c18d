// The rope of a head's layers: what its config names, else the target's.
#ifndef TALON_MODEL_HEADS_HEAD_ROPE_H_
#define TALON_MODEL_HEADS_HEAD_ROPE_H_

#include <string>

#include "base/json_fwd.h"
#include "base/status.h"
#include "model/config.h"

namespace talon {

// `layers` was parsed from the object `keys`; `what` names it in messages.
Status TakeRope(const Json& keys, const std::string& what, const ModelConfig& target,
                ModelConfig* layers);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_HEAD_ROPE_H_
