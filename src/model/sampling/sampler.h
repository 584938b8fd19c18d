// The target's choice of one sequence: all processors along a tree node's own path, then the seeded
// draw (base/random.h).
//
// A Sampler has a request's parameters and the counts that penalties need; the tokens belong to the
// sequence. Sampler::At binds it to a *base*: the prompt and the tokens after it, the root of the
// current tree included. A row of the tree is judged with base + `path`, where `path` holds the
// tokens after the root down to the row's own node, in order (empty for the root's row). Choosing
// changes nothing, so any number of rows may be judged before Observe() counts what was kept.
// Because the draw depends on (seed, absolute position, choice) alone, the outcome is the same
// whether a token was reached along a path or one at a time.
//
// One thread at a time, but const functions may run concurrently. Copyable: a copy is a fork.
#ifndef TALON_MODEL_SAMPLING_SAMPLER_H_
#define TALON_MODEL_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "compute/backend.h"
#include "grammar/cursor.h"
#include "model/sampling/sampling_params.h"

namespace talon {

struct TopLogProb {
  int32_t token = 0;
  float log_prob = 0;
};

struct Choice {
  int32_t token = -1;
  // Log-softmax of the processed logits without temperature (fp32 exponentials, double sum). Only
  // filled if the request asks for log-probs.
  float log_prob = 0;
  std::vector<TopLogProb> top;  // most likely first, ties to the lower id
  bool dead_end = false;        // everything is masked: finish the request, there is no token
};

// The log-probs that a row gives to `token` and to its `top` most likely tokens. Without any finite
// logit they are NaN.
Choice ScoreToken(std::span<const float> logits, int32_t token, int top);

class BoundSampler;

class Sampler {
 public:
  // REQUIRES: params.Validate(vocabulary) is OK; the tokens are in the vocabulary.
  Sampler(SamplingParams params, std::vector<int32_t> eos_ids, std::span<const int32_t> prompt);

  // The sampler for rows whose tree hangs below `tokens`, which the caller owns and keeps. They
  // begin with the prompt and the observed tokens; those after them are counted in each row.
  BoundSampler At(std::span<const int32_t> tokens) const;

  // Counts tokens that were emitted for good.
  void Observe(std::span<const int32_t> tokens);

  // The draw's parameters, for a device that chooses (BoundSampler::IsPlain).
  RowDraw DrawOf() const;
  // True for EOS (unless ignored) and the stop ids.
  bool EndsRequest(int32_t token) const;
  // Whether a grammar says what may follow, and where it stands after the sequence's `tokens`.
  bool has_grammar() const { return grammar_.active(); }
  const GrammarCursor& grammar() const { return grammar_; }
  Matcher::StateId GrammarState(std::span<const int32_t> tokens) const {
    return grammar_.After(tokens.subspan(answer_start_), {});
  }
  // Whether the grammar lets `token` follow: text that goes on, or an end where it may end.
  // REQUIRES: has_grammar().
  bool GrammarAllows(Matcher::StateId state, int32_t token) const;
  // The bits of all tokens that may follow, the vocabulary's number of them rounded up to words.
  std::vector<uint64_t> AllowedTokens(Matcher::StateId state, int vocabulary) const;

  const SamplingParams& params() const { return params_; }
  uint64_t seed() const { return seed_; }  // the request's, or the random one it was given

 private:
  friend class BoundSampler;
  struct Seen {
    int32_t token = 0;
    int prompt = 0;  // occurrences
    int output = 0;
  };

  bool HasPenalties() const;
  float Penalize(float logit, int output_count) const;
  Seen& SeenEntry(int32_t token);

  SamplingParams params_;
  std::vector<int32_t> eos_ids_;
  GrammarCursor grammar_;
  uint64_t seed_;
  size_t prompt_length_;
  size_t answer_start_;  // what the grammar is about
  size_t counted_;       // leading tokens of the sequence: the prompt and what was observed
  // Counts of their distinct tokens, kept only if there are penalties.
  std::vector<Seen> seen_;
  std::unordered_map<int32_t, int> seen_index_;  // token -> index in seen_
};

// A sampler and the base that it chooses after. A view: both must outlive it.
class BoundSampler {
 public:
  BoundSampler(const Sampler* sampler, std::span<const int32_t> tokens);

  // Steps 1 to 7 and the draw for one row. On return `logits` holds the row after step 3, so a row
  // can be used once. Tokens that the grammar forbids are -inf then.
  Choice Choose(std::span<float> logits, std::span<const int32_t> path) const;

  // The distribution Choose() draws from (one-hot where greedy), for acceptance rules that need p.
  // False if everything is masked. Uses the row up like Choose().
  bool Distribution(std::span<float> logits, std::span<const int32_t> path,
                    std::vector<float>* probs) const;

  // The generator's key for the token after `path`, for acceptance rules with draws of their own.
  RandomKey Key(size_t path_length, RandomStream stream, uint32_t draw = 0) const;

  // True if the choice is the argmax of the raw logits wherever Permits() holds for it, now and for
  // every later token, and no log-probs are wanted: the backend's argmax can replace Choose().
  bool IsPlainGreedy() const { return params_.temperature == 0 && IsPlain(); }
  // The same for tokens drawn from the raw logits: temperature, top-k, top-p, min-p. With a
  // grammar, from the logits of what it allows.
  bool IsPlain() const;
  // Whether the grammar, if there is one, lets `token` follow `path`.
  bool Permits(int32_t token, std::span<const int32_t> path) const;
  // Where the grammar stands after `path`. REQUIRES: has_grammar().
  Matcher::StateId GrammarState(std::span<const int32_t> path) const {
    return sampler_->grammar_.After(tokens_.subspan(sampler_->answer_start_), path);
  }

  int num_outputs() const { return static_cast<int>(tokens_.size() - sampler_->prompt_length_); }
  const Sampler& sampler() const { return *sampler_; }
  const SamplingParams& params() const { return params_; }

 private:
  void Process(std::span<float> logits, std::span<const int32_t> path) const;
  void ApplyPenalties(std::span<float> logits, std::span<const int32_t> path) const;
  void MaskStops(std::span<float> logits) const;
  void MaskBadWords(std::span<float> logits, std::span<const int32_t> path) const;
  bool TakesBest(float best_logit) const;  // greedy, or an infinite logit that leaves no choice
  int32_t Draw(std::span<const float> logits, size_t path_length) const;

  const Sampler* sampler_;
  const SamplingParams& params_;
  std::span<const int32_t> tokens_;
};

}  // namespace talon

#endif  // TALON_MODEL_SAMPLING_SAMPLER_H_
