// One sequence with a private KV cache of fixed size: what a check of a model needs, and no more.
// Blocks are used in order, so token t lives in slot t. Generation proper uses kv/.
#ifndef TALON_MODEL_SINGLE_SEQUENCE_H_
#define TALON_MODEL_SINGLE_SEQUENCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/pass_plan.h"
#include "model/decoder.h"

namespace talon {

class SingleSequence {
 public:
  struct Limits {
    int max_tokens = 0;
    int max_tree = 0;  // nodes of one tree
    DType kv_dtype = DType::kF32;
  };
  static Result<SingleSequence> Create(Decoder* decoder, Backend* backend, const Limits& limits);

  // What rows a call returns, in host memory, row-major.
  struct Rows {
    std::vector<float> logits;    // [rows, vocab]
    std::vector<float> hidden;    // [rows, hidden], after the final norm
    std::vector<float> features;  // [rows, captured * hidden]
  };

  // Appends tokens and returns all their rows.
  Result<Rows> Append(std::span<const int32_t> tokens);
  // Appends tokens and returns the most probable next one.
  Result<int32_t> AppendGreedy(std::span<const int32_t> tokens);
  // Rows of a tree whose nodes hang off the last appended token (parent -1) or an earlier node. The
  // sequence stays as it is.
  Result<Rows> Tree(std::span<const int32_t> tokens, std::span<const int32_t> parents);

  void Clear() { length_ = 0; }

 private:
  SingleSequence(Decoder* decoder, Backend* backend) : decoder_(decoder), backend_(backend) {}
  Status AllocateCache(const Limits& limits);
  KvView View() const { return {shape_, layers_}; }
  // A plan that appends tokens; logits of rows from `first_output` on.
  PassPlan PromptPlan(std::span<const int32_t> tokens, int first_output) const;
  void AddBlocks(int tokens, PassPlan* plan) const;
  void CopyRows(const ForwardOutput& output, Rows* rows) const;
  void CopyMatrix(const MatrixView& matrix, std::vector<float>* out) const;
  Status CheckRoom(size_t tokens) const;

  Decoder* decoder_;
  Backend* backend_;
  KvShape shape_;
  std::vector<Buffer> buffers_;
  std::vector<KvLayer> layers_;
  int max_tokens_ = 0;
  int length_ = 0;
};

}  // namespace talon

#endif  // TALON_MODEL_SINGLE_SEQUENCE_H_
