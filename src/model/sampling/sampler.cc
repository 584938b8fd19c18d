#include "model/sampling/sampler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
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

// A token of the path: its raw logit and how often the path has it.
struct PathToken {
  int32_t token = 0;
  float raw_logit = 0;
  int count = 0;
};

std::vector<PathToken> CountPath(std::span<const float> logits, std::span<const int32_t> path) {
  std::vector<PathToken> counts;
  for (const int32_t token : path) {
    auto entry = std::ranges::find(counts, token, &PathToken::token);
    if (entry == counts.end()) {
      counts.push_back({.token = token, .raw_logit = logits[token]});
      entry = counts.end() - 1;
    }
    ++entry->count;
  }
  return counts;
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
      seed_(params_.seed.has_value() ? *params_.seed : RandomSeed()),
      prompt_length_(prompt.size()),
      tokens_(prompt.begin(), prompt.end()) {
  if (!HasPenalties()) return;
  for (const int32_t token : prompt) ++SeenEntry(token).prompt;
}

Choice Sampler::Choose(std::span<float> logits, std::span<const int32_t> path) const {
  Process(logits, path);
  Choice choice;
  choice.token = Draw(logits, path.size());
  choice.dead_end = choice.token < 0;
  if (!choice.dead_end && params_.logprobs >= 0) ReportLogProbs(logits, &choice);
  return choice;
}

bool Sampler::Distribution(std::span<float> logits, std::span<const int32_t> path,
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

RandomKey Sampler::Key(size_t path_length, RandomStream stream, uint32_t draw) const {
  return {.seed = seed_,
          .position = tokens_.size() + path_length,
          .stream = stream,
          .choice = params_.choice,
          .draw = draw};
}

bool Sampler::IsPlain() const {
  return !HasPenalties() && params_.logit_bias.empty() && params_.bad_words.empty() &&
         params_.logprobs < 0 && num_outputs() >= params_.min_tokens;
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

void Sampler::Observe(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (!HasPenalties()) return;
  for (const int32_t token : tokens) ++SeenEntry(token).output;
}

void Sampler::Rewind(int count) {
  TALON_CHECK(count >= 0 && count <= num_outputs(), "rewind {} of {} tokens", count, num_outputs());
  for (int i = 0; i < count; ++i) {
    if (HasPenalties()) --SeenEntry(tokens_.back()).output;
    tokens_.pop_back();
  }
}

bool Sampler::HasPenalties() const {
  return params_.repetition_penalty != 1 || params_.frequency_penalty != 0 ||
         params_.presence_penalty != 0;
}

void Sampler::Process(std::span<float> logits, std::span<const int32_t> path) const {
  if (HasPenalties()) ApplyPenalties(logits, path);
  for (const auto& [token, bias] : params_.logit_bias) logits[token] += bias;
  const size_t outputs = num_outputs() + path.size();
  if (outputs < static_cast<size_t>(params_.min_tokens)) MaskStops(logits);
  MaskBadWords(logits, path);
}

// The path's tokens are penalised again from their raw logits with both counts, which costs the
// path's length and leaves the base alone.
void Sampler::ApplyPenalties(std::span<float> logits, std::span<const int32_t> path) const {
  const std::vector<PathToken> path_tokens = CountPath(logits, path);
  for (const Seen& seen : seen_) {
    if (seen.prompt + seen.output == 0) continue;
    logits[seen.token] = Penalize(logits[seen.token], seen.output);
  }
  for (const PathToken& entry : path_tokens) {
    const auto found = seen_index_.find(entry.token);
    const int base_count = found == seen_index_.end() ? 0 : seen_[found->second].output;
    logits[entry.token] = Penalize(entry.raw_logit, base_count + entry.count);
  }
}

void Sampler::MaskStops(std::span<float> logits) const {
  Mask(eos_ids_, logits);
  Mask(params_.stop_token_ids, logits);
}

void Sampler::MaskBadWords(std::span<float> logits, std::span<const int32_t> path) const {
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

bool Sampler::TakesBest(float best_logit) const {
  return params_.temperature == 0 || best_logit > std::numeric_limits<float>::max();
}

int32_t Sampler::Draw(std::span<const float> logits, size_t path_length) const {
  const int32_t best = ArgMax(logits);
  if (best < 0 || TakesBest(logits[best])) return best;
  const double u = UniformDraw(Key(path_length, RandomStream::kTarget));
  return DrawToken(logits, TruncationOf(params_), u);
}

void Sampler::ReportLogProbs(std::span<const float> logits, Choice* choice) const {
  const double normalizer = LogSumExp(logits);
  const auto log_prob = [&](float logit) { return static_cast<float>(logit - normalizer); };
  choice->log_prob = log_prob(logits[choice->token]);
  for (const Candidate& candidate : TopCandidates(logits, params_.logprobs)) {
    choice->top.push_back({candidate.token, log_prob(candidate.logit)});
  }
}

}  // namespace talon
