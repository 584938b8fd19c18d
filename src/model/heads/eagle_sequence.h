// One sequence of an EAGLE-3 head with a cache of its own, for checks of a head.
#ifndef TALON_MODEL_HEADS_EAGLE_SEQUENCE_H_
#define TALON_MODEL_HEADS_EAGLE_SEQUENCE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/heads/eagle_head.h"
#include "model/private_kv.h"
#include "model/scratch.h"

namespace talon {

class EagleSequence {
 public:
  using Limits = PrivateKv::Limits;
  static Result<EagleSequence> Create(EagleHead* head, Backend* backend, const Limits& limits);

  // What rows a call returns, in host memory, row-major.
  struct Rows {
    std::vector<float> logits;  // [rows, draft vocabulary]
    std::vector<float> hidden;  // [rows, H]
    std::vector<float> next;    // [rows, H]
  };

  // Appends rows and returns all of them. `features` [tokens, A*Ht] are the target's; tokens[i] is
  // the one that follows its i-th row.
  Result<Rows> Append(std::span<const float> features, std::span<const int32_t> tokens);
  // Rows of a tree as in PrivateKv::TreePlan, on `inputs` [tokens, H]: earlier rows' `next`. The
  // sequence stays as it is.
  Result<Rows> Tree(std::span<const float> inputs, std::span<const int32_t> tokens,
                    std::span<const int32_t> parents);

  void Clear() { kv_.Clear(); }

 private:
  EagleSequence(EagleHead* head, Backend* backend, PrivateKv kv)
      : head_(head), backend_(backend), kv_(std::move(kv)) {}
  Status Run(const PassPlan& plan, MatrixView inputs, Rows* rows);

  EagleHead* head_;
  Backend* backend_;
  PrivateKv kv_;
  Scratch features_;  // [max_output_rows, A*Ht]
  Scratch inputs_;    // [max_output_rows, H]
};

}  // namespace talon

#endif  // TALON_MODEL_HEADS_EAGLE_SEQUENCE_H_
