#include "compute/layer_ops.h"

#include "base/check.h"

namespace talon {

LayerOps& LayerOpsOf(Backend& backend) {
  auto* ops = dynamic_cast<LayerOps*>(&backend);
  TALON_CHECK(ops != nullptr, "the {} backend has no layer ops", backend.name());
  return *ops;
}

}  // namespace talon
