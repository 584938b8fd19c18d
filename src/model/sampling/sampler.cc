#include "model/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/host/host_token_ops.h"
#include "model/sampling/sampling_math.h"

namespace talon {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void Mask(std::span<const int32_t> tokens, std::span<float> logits) {
  for (const int32_t token : tokens) {
    if (token >= 0 && static_cast<size_t>(token) < logits.size()) logits[token] = kMasked;
  }
}

bool Contains(const std::vector<int32_t>& tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// True if base followed by path ends with `tail`.
bool EndsWith(std::span<const int32_t> base, std::span<const int32_t> path,
              std::span<const int32_t> tail) {
  const size_t from_path = std::min(path.size(), tail.size());
  const size_t from_base = tail.size() - from_path;
  if (from_base > base.size()) return false;
  return std::ranges::equal(path.last(from_path), tail.last(from_path)) &&
         std::ranges::equal(base.last(from_base), tail.first(from_base));
}

// A token that is not in the sampler's counts: its raw logit and its number of occurrences.
struct UncountedToken {
  int32_t token = 0;
  float raw_logit = 0;
  int count = 0;
};

void CountTokens(std::span<const float> logits, std::span<const int32_t> tokens,
                 std::vector<UncountedToken>* counts) {
  for (const int32_t token : tokens) {
    auto entry = std::ranges::find(*counts, token, &UncountedToken::token);
    if (entry == counts->end()) {
      counts->push_back({.token = token, .raw_logit = logits[token]});
      entry = counts->end() - 1;
    }
    ++entry->count;
  }
}

Truncation TruncationOf(const SamplingParams& params) {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p};
}

}  // namespace

Sampler::Sampler(SamplingParams params, std::vector<int32_t> eos_ids,
                 std::span<const int32_t> prompt)
    : params_(std::move(params)),
      eos_ids_(std::move(eos_ids)),
      grammar_(params_.grammar),
      seed_(params_.seed.has_value() ? *params_.seed : RandomSeed()),
      prompt_length_(prompt.size()),
      answer_start_(params_.answer_start.value_or(prompt.size())),
      counted_(prompt.size()) {
  if (!HasPenalties()) return;
  for (const int32_t token : prompt) ++SeenEntry(token).prompt;
}

BoundSampler Sampler::At(std::span<const int32_t> tokens) const { return {this, tokens}; }

BoundSampler::BoundSampler(const Sampler* sampler, std::span<const int32_t> tokens)
    : sampler_(sampler), params_(sampler->params_), tokens_(tokens) {
  TALON_CHECK(tokens.size() >= sampler->counted_, "{} tokens, {} were observed", tokens.size(),
              sampler->counted_);
}

Choice BoundSampler::Choose(std::span<float> logits, std::span<const int32_t> path) const {
  Process(logits, path);
  Choice choice;
  choice.token = Draw(logits, path.size());
  choice.dead_end = choice.token < 0;
  if (choice.dead_end || params_.logprobs < 0) return choice;
  return ScoreToken(logits, choice.token, params_.logprobs);
}

bool BoundSampler::Distribution(std::span<float> logits, std::span<const int32_t> path,
                                std::vector<float>* probs) const {
  Process(logits, path);
  const int32_t best = ArgMax(logits);
  if (best < 0) return false;
  if (TakesBest(logits[best])) {
    probs->assign(logits.size(), 0.0f);
    (*probs)[best] = 1.0f;
  } else {
    FinalProbabilities(logits, TruncationOf(params_), probs);
  }
  return true;
}

RandomKey BoundSampler::Key(size_t path_length, RandomStream stream, uint32_t draw) const {
  return {.seed = sampler_->seed_,
          .position = tokens_.size() + path_length,
          .stream = stream,
          .choice = params_.choice,
          .draw = draw};
}

bool BoundSampler::IsPlain() const {
  return !sampler_->HasPenalties() && params_.logit_bias.empty() && params_.bad_words.empty() &&
         params_.logprobs < 0 && num_outputs() >= params_.min_tokens;
}

bool BoundSampler::Permits(int32_t token, std::span<const int32_t> path) const {
  if (!sampler_->has_grammar()) return true;
  return sampler_->GrammarAllows(GrammarState(path), token);
}

RowDraw Sampler::DrawOf() const {
  return {.seed = seed_,
          .choice = static_cast<uint32_t>(params_.choice),
          .temperature = params_.temperature,
          .top_k = params_.top_k,
          .top_p = params_.top_p,
          .min_p = params_.min_p};
}

bool Sampler::EndsRequest(int32_t token) const {
  return (!params_.ignore_eos && Contains(eos_ids_, token)) ||
         Contains(params_.stop_token_ids, token);
}

bool Sampler::GrammarAllows(Matcher::StateId state, int32_t token) const {
  const bool ends = Contains(eos_ids_, token) || Contains(params_.stop_token_ids, token);
  return ends ? grammar_.Accepts(state) : grammar_.Next(state, token) != Matcher::kDead;
}

std::vector<uint64_t> Sampler::AllowedTokens(Matcher::StateId state, int vocabulary) const {
  std::vector<int32_t> ends = params_.stop_token_ids;
  ends.insert(ends.end(), eos_ids_.begin(), eos_ids_.end());
  std::vector<uint64_t> bits(CeilDiv(vocabulary, 64));
  grammar_.Allowed(state, ends, bits);
  return bits;
}

void Sampler::Observe(std::span<const int32_t> tokens) {
  counted_ += tokens.size();
  if (!HasPenalties()) return;
  for (const int32_t token : tokens) ++SeenEntry(token).output;
}

bool Sampler::HasPenalties() const {
  return params_.repetition_penalty != 1 || params_.frequency_penalty != 0 ||
         params_.presence_penalty != 0;
}

void BoundSampler::Process(std::span<float> logits, std::span<const int32_t> path) const {
  if (sampler_->HasPenalties()) ApplyPenalties(logits, path);
  for (const auto& [token, bias] : params_.logit_bias) logits[token] += bias;
  const size_t outputs = num_outputs() + path.size();
  if (outputs < static_cast<size_t>(params_.min_tokens)) MaskStops(logits);
  MaskBadWords(logits, path);
  if (!sampler_->has_grammar()) return;
  MaskLogits(sampler_->AllowedTokens(GrammarState(path), static_cast<int>(logits.size())), logits);
}

// Tokens of the path, and those of the base that are not counted yet, are penalised again from
// their raw logits with both counts. That costs their number and leaves the counts alone.
void BoundSampler::ApplyPenalties(std::span<float> logits, std::span<const int32_t> path) const {
  std::vector<UncountedToken> uncounted;
  CountTokens(logits, tokens_.subspan(sampler_->counted_), &uncounted);
  CountTokens(logits, path, &uncounted);
  for (const Sampler::Seen& seen : sampler_->seen_) {
    logits[seen.token] = sampler_->Penalize(logits[seen.token], seen.output);
  }
  for (const UncountedToken& entry : uncounted) {
    const auto found = sampler_->seen_index_.find(entry.token);
    const int counted =
        found == sampler_->seen_index_.end() ? 0 : sampler_->seen_[found->second].output;
    logits[entry.token] = sampler_->Penalize(entry.raw_logit, counted + entry.count);
  }
}

void BoundSampler::MaskStops(std::span<float> logits) const {
  Mask(sampler_->eos_ids_, logits);
  Mask(params_.stop_token_ids, logits);
}

void BoundSampler::MaskBadWords(std::span<float> logits, std::span<const int32_t> path) const {
  for (const std::vector<int32_t>& word : params_.bad_words) {
    const std::span<const int32_t> head(word.data(), word.size() - 1);
    if (EndsWith(tokens_, path, head)) logits[word.back()] = kMasked;
  }
}

float Sampler::Penalize(float logit, int output_count) const {
  const float repeated =
      logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
  if (output_count == 0) return repeated;
  return repeated -
         (params_.frequency_penalty * static_cast<float>(output_count) + params_.presence_penalty);
}

Sampler::Seen& Sampler::SeenEntry(int32_t token) {
  const auto [entry, is_new] = seen_index_.try_emplace(token, static_cast<int>(seen_.size()));
  if (is_new) seen_.push_back({.token = token});
  return seen_[entry->second];
}

bool BoundSampler::TakesBest(float best_logit) const {
  return params_.temperature == 0 || best_logit > std::numeric_limits<float>::max();
}

int32_t BoundSampler::Draw(std::span<const float> logits, size_t path_length) const {
  const int32_t best = ArgMax(logits);
  if (best < 0 || TakesBest(logits[best])) return best;
  const double u = UniformDraw(Key(path_length, RandomStream::kTarget));
  return DrawToken(logits, TruncationOf(params_), u);
}

Choice ScoreToken(std::span<const float> logits, int32_t token, int top) {
  const int32_t best = ArgMax(logits);
  const bool finite =
      best >= 0 && best < static_cast<int32_t>(logits.size()) && std::isfinite(logits[best]);
  const double normalizer = finite ? LogSumExp(logits) : std::numeric_limits<double>::quiet_NaN();
  const auto log_prob = [&](float logit) { return static_cast<float>(logit - normalizer); };
  Choice choice{.token = token, .log_prob = log_prob(logits[token])};
  for (const Candidate& candidate : TopCandidates(logits, top)) {
    choice.top.push_back({candidate.token, log_prob(candidate.logit)});
  }
  return choice;
}

}  // namespace talon
