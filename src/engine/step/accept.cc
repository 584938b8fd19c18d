#include "engine/step/accept.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "observe/stage_range.h"

namespace talon {
namespace {

// The rows of one tree in the pass's logits, judged by the request's sampler.
class LogitRows : public TreeRows {
 public:
  // `choices` of the tree's rows, or empty: the host makes them.
  LogitRows(Backend* backend, const MatrixView& logits, std::span<const int32_t> choices,
            const BoundSampler& sampler)
      : backend_(backend), logits_(logits), choices_(choices), sampler_(sampler) {}

  Choice Choose(int node, std::span<const int32_t> path) override {
    Choice choice =
        choices_.empty() ? sampler_.Choose(Fetch(node), path) : ChoiceOfDevice(node, path);
    // Where every logit is NaN, the argmax is column 0 and a draw finds nothing: only such rows
    // need a second look.
    if (choice.token > 0 || !IsBroken(node)) return choice;
    broken_ = true;
    return {.dead_end = true};
  }
  bool Distribution(int node, std::span<const int32_t> path, std::vector<float>* probs) override {
    if (sampler_.Distribution(Fetch(node), path, probs)) return true;
    broken_ = IsBroken(node);
    return false;
  }

  // Whether the walk ended at a row without any finite logit.
  bool broken() const { return broken_; }

 private:
  Choice ChoiceOfDevice(int node, std::span<const int32_t> path) {
    int32_t token = choices_[node];
    // A draw was among what the grammar allows. The best token of all is the best of these, if it
    // is one of them.
    if (NeedsMasks(sampler_) || sampler_.Permits(token, path)) {
      return {.token = token, .dead_end = token < 0};
    }
    const std::array<int32_t, 1> row = {node};
    const auto mask = sampler_.sampler().AllowedTokens(sampler_.GrammarState(path), logits_.cols);
    backend_->token_ops()->MaskRows(logits_, row, mask);
    backend_->token_ops()->Argmax(logits_.Rows(node, 1), {&token, 1});
    const bool allowed = (mask[token / 64] >> (token % 64) & 1) != 0;
    return allowed ? Choice{.token = token} : Choice{.dead_end = true};
  }

  // Whether the model gave no finite logit; the first one usually decides. Where a mask has
  // forbidden everything, NaN tells.
  bool IsBroken(int node) {
    float first = 0;
    backend_->CopyOut(&first, logits_.Rows(node, 1).data, sizeof(first));
    if (std::isfinite(first)) return false;
    const std::span<const float> row = Fetch(node);
    if (std::ranges::any_of(row, [](float logit) { return std::isfinite(logit); })) return false;
    return !sampler_.sampler().has_grammar() ||
           std::ranges::any_of(row, [](float logit) { return std::isnan(logit); });
  }

  std::span<float> Fetch(int node) {
    const MatrixView row = logits_.Rows(node, 1);
    host_.resize(row.cols);
    backend_->CopyOut(host_.data(), row.data, row.cols * sizeof(float));
    return host_;
  }

  Backend* backend_;
  MatrixView logits_;
  std::span<const int32_t> choices_;
  BoundSampler sampler_;
  std::vector<float> host_;
  bool broken_ = false;
};

}  // namespace

bool NeedsMasks(const BoundSampler& sampler) {
  return sampler.sampler().has_grammar() && sampler.params().temperature > 0;
}

bool DeviceChooses(const BoundSampler& sampler, const StepOptions& options, Backend* backend) {
  if (sampler.IsPlainGreedy()) return true;
  return sampler.IsPlain() && options.accept == AcceptMode::kMatch &&
         backend->token_ops()->DrawsTokens();
}

void Acceptor::Accept(StepBatch* batch, const VerifiedPass& verified) const {
  const StageRange range("Accept");
  for (StepEntry& entry : batch->entries) {
    Walk(&entry, verified);
    Emit(&entry);
  }
}

void Acceptor::Walk(StepEntry* entry, const VerifiedPass& verified) const {
  const BoundSampler sampler = entry->sampler();
  const PlannedRows& planned = entry->rows;
  std::span<const int32_t> choices;
  if (DeviceChooses(sampler, options_, parts_.backend)) {
    choices = std::span(verified.choices).subspan(planned.first_output, planned.num_outputs);
  }
  LogitRows rows(parts_.backend,
                 verified.output.logits.Rows(planned.first_output, planned.num_outputs), choices,
                 sampler);
  const TokenTree& judged = entry->proposal.judged();
  const bool random = sampler.params().temperature > 0;
  const AcceptMode mode = entry->run->accept.value_or(options_.accept);
  Verdict& verdict = entry->verdict;
  if (random && mode == AcceptMode::kThreshold && options_.thresholds.lossy()) {
    verdict.acceptance = AcceptThreshold(judged, rows, sampler, options_.thresholds);
    entry->run->result.stats.lossy = true;
  } else if (random && mode == AcceptMode::kRejection) {
    verdict.acceptance = AcceptRejection(judged, rows, sampler);
  } else {
    verdict.acceptance = AcceptMatch(judged, rows);
  }
  verdict.broken = rows.broken();
  verdict.path = entry->proposal.PathInTree(verdict.acceptance.path);
  verdict.draft_path = entry->proposal.PathInDrafts(verdict.path);
}

// Nothing may follow: the text is complete in its grammar, or every token is forbidden.
FinishReason Acceptor::EndWithoutToken(const StepEntry& entry) {
  const Sampler& sampler = entry.run->sampler;
  if (!sampler.has_grammar()) return FinishReason::kDeadEnd;
  std::vector<int32_t> tokens(entry.base().begin(), entry.base().end());
  for (const EmittedToken& token : entry.verdict.emitted) tokens.push_back(token.token);
  const Matcher::StateId state = sampler.GrammarState(tokens);
  return sampler.grammar().Accepts(state) ? FinishReason::kStop : FinishReason::kDeadEnd;
}

void Acceptor::Emit(StepEntry* entry) const {
  const ActiveRequest& run = *entry->run;
  Verdict& verdict = entry->verdict;
  const bool after_provisional = run.partial.text && entry->proposal.num_rejudged() == 0;
  verdict.text_after = after_provisional ? *run.partial.text : run.text;
  const auto length_before = static_cast<int>(entry->base().size());
  const Acceptance& acceptance = verdict.acceptance;
  for (size_t i = 0; i < acceptance.choices.size(); ++i) {
    const Choice& choice = acceptance.choices[i];
    if (choice.dead_end) {
      verdict.finish = verdict.broken ? FinishReason::kError : EndWithoutToken(*entry);
      return;
    }
    verdict.emitted.push_back({.token = choice.token,
                               .drafted = i + 1 < acceptance.path.size(),
                               .log_prob = choice.log_prob,
                               .top = choice.top});
    const int length = length_before + static_cast<int>(verdict.emitted.size());
    if (run.sampler.EndsRequest(choice.token) || verdict.text_after->Push(choice.token)) {
      verdict.finish = FinishReason::kStop;
    } else if (length - run.prompt_tokens >= run.request.sampling.max_tokens ||
               length >= options_.max_length) {
      verdict.finish = FinishReason::kLength;
    }
    if (verdict.finish != FinishReason::kNone) return;
  }
}

}  // namespace talon
