// One sequence of a decoder with a cache of its own, for checks of a model.
#ifndef TALON_MODEL_SINGLE_SEQUENCE_H_
#define TALON_MODEL_SINGLE_SEQUENCE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/decoder.h"
#include "model/private_kv.h"

namespace talon {

class SingleSequence {
 public:
  using Limits = PrivateKv::Limits;
  // Both must outlive the sequence.
  static Result<SingleSequence> Create(Decoder* decoder, Backend* backend, const Limits& limits);
  SingleSequence(SingleSequence&&) = default;
  ~SingleSequence() { decoder_->kv_ops()->ForgetCache(kv_.View()); }

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

  void Clear() { kv_.Clear(); }

 private:
  SingleSequence(Decoder* decoder, Backend* backend, PrivateKv kv)
      : decoder_(decoder), backend_(backend), kv_(std::move(kv)) {}
  void CopyOutput(const ForwardOutput& output, Rows* rows) const;

  Decoder* decoder_;
  Backend* backend_;
  PrivateKv kv_;
};

}  // namespace talon

#endif  // TALON_MODEL_SINGLE_SEQUENCE_H_
