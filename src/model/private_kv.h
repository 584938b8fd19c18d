// The KV cache of one sequence, of fixed size, and the plans of its passes: what a check of a model
// needs, and no more. Blocks are used in order, so token t lives in slot t. Generation proper uses
// kv/.
#ifndef TALON_MODEL_PRIVATE_KV_H_
#define TALON_MODEL_PRIVATE_KV_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/pass_plan.h"

namespace talon {

class PrivateKv {
 public:
  struct Limits {
    int max_tokens = 0;
    int max_tree = 0;  // nodes of one tree
    DType kv_dtype = DType::kF32;
  };
  // Layers, heads and head size are those of `shape`. The backend must outlive the cache.
  static Result<PrivateKv> Create(Backend* backend, KvShape shape, const Limits& limits);

  KvView View() const { return {shape_, layers_}; }
  int length() const { return length_; }
  Status CheckRoom(size_t tokens) const;
  // After a pass of PromptPlan: its tokens are part of the sequence.
  void Advance(size_t tokens) { length_ += static_cast<int>(tokens); }
  void Clear() { length_ = 0; }

  // A plan that appends tokens; outputs and features of rows from `first_output` on.
  PassPlan PromptPlan(std::span<const int32_t> tokens, int first_output) const;
  // A plan of staged nodes that hang off the last token (parent -1) or an earlier node; outputs and
  // features of all.
  Result<PassPlan> TreePlan(std::span<const int32_t> tokens,
                            std::span<const int32_t> parents) const;

 private:
  void AddBlocks(int tokens, PassPlan* plan) const;

  KvShape shape_;
  std::vector<Buffer> buffers_;
  std::vector<KvLayer> layers_;
  int max_tokens_ = 0;
  int length_ = 0;
};

// Appends the matrix, row by row, to host memory.
void CopyRows(Backend* backend, const MatrixView& matrix, std::vector<float>* out);

}  // namespace talon

#endif  // TALON_MODEL_PRIVATE_KV_H_
