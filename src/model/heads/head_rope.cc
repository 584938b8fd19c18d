#include "model/heads/head_rope.h"

#include "base/json.h"
#include "base/log.h"

namespace talon {

Status TakeRope(const Json& keys, const std::string& what, const ModelConfig& target,
                ModelConfig* layers) {
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) {
    const auto it = keys.find(key);
    if (it != keys.end() && !it->is_null()) return OkStatus();
  }
  layers->rope = target.rope;
  LogInfo("{}: names no rope, so the target's is used: {}, theta {}", what,
          RopeKindName(target.rope.kind), target.rope.theta);
  return CheckRope(layers->rope, layers->head_dim, "the target's rope").WithContext(what);
}

}  // namespace talon
