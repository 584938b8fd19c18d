// Copies of partial views, where the cache's blocks are offloaded: each tail region has room for
// the blocks of one view where they are read fast.
#ifndef TALON_KV_VIEW_COPIES_H_
#define TALON_KV_VIEW_COPIES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"

namespace talon {

class Backend;

class ViewCopies {
 public:
  // Allocates room for `regions` views of `blocks` blocks of the cache. Staging rows are the
  // cache's own. Not called: there are no copies.
  Status Allocate(Backend* backend, const KvView& cache, int regions, int blocks);

  KvView view() const { return {shape_, layers_}; }
  size_t bytes() const { return memory_.bytes(); }
  // Copies the blocks of each (layer, kv head), layer by layer, beside other work
  // (KvOps::CopyTiles). Returns their blocks in view(), the same for all. Fails without effect if
  // there are too many.
  Result<std::vector<int32_t>> Copy(const KvView& cache, std::span<const int32_t> block_ids,
                                    int region);
  // Fails if a view of so many (layer, kv head) lists does not fit.
  Status CheckFits(std::span<const int32_t> block_ids) const;

 private:
  Backend* backend_ = nullptr;
  int blocks_per_view_ = 0;
  Buffer memory_;
  KvShape shape_;  // num_blocks is 0 where there are no copies
  std::vector<KvLayer> layers_;
};

}  // namespace talon

#endif  // TALON_KV_VIEW_COPIES_H_
