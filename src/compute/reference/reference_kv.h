// Elements of K and V in host memory, one at a time: the slow twin of quantised caches.
#ifndef TALON_COMPUTE_REFERENCE_REFERENCE_KV_H_
#define TALON_COMPUTE_REFERENCE_REFERENCE_KV_H_

#include "compute/host/host_memory.h"
#include "compute/kv_view.h"

namespace talon {

// Stores head_dim elements, rounded to the cache's type.
void ReferenceStore(const KvShape& shape, const float* from, const HostVector& to);
// One of them.
float ReferenceLoad(const KvShape& shape, const HostVector& from, int d);

}  // namespace talon

#endif  // TALON_COMPUTE_REFERENCE_REFERENCE_KV_H_
