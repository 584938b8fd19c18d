#include "remote/remote_drafter.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "engine/draft_forest.h"
#include "remote/overlap.h"

namespace talon {

RemoteDrafter::RemoteDrafter(Parts parts, const RemoteDrafterOptions& options)
    : parts_(std::move(parts)),
      options_(options),
      name_(fmt::format("talon-{:016x}", RandomSeed())),
      client_({.link = parts_.link.get(),
               .bridge = parts_.bridge.get(),
               .timer = parts_.timer != nullptr ? parts_.timer : &clock_,
               .metrics = parts_.metrics},
              options.client) {
  if (parts_.timer == nullptr) parts_.timer = &clock_;
}

Status RemoteDrafter::Begin(SequenceId sequence, std::span<const int32_t>) {
  sequences_.erase(sequence);
  sequences_.try_emplace(sequence);
  return OkStatus();
}

DraftStream& RemoteDrafter::StreamOf(const DraftRequest& request) {
  std::optional<DraftStream>& stream = sequences_[request.sequence].stream;
  if (!stream) {
    const float temperature =
        options_.draft_temperature >= 0 ? options_.draft_temperature : request.temperature;
    stream.emplace(&client_, fmt::format("{}-{}", name_, request.sequence),
                   DraftStream::Sampling{.temperature = temperature, .seed = request.seed});
  }
  return *stream;
}

// The drafts as a tree, cut to the budget and the vocabulary.
TokenTree RemoteDrafter::TreeFrom(DraftForest drafts, const DraftRequest& request) const {
  drafts = Prune(drafts, {.max_depth = request.budget.max_depth,
                          .max_nodes = request.budget.max_nodes - 1,
                          .vocab_size = options_.vocab_size});
  return CanonicalTree(TreeOfForest(request.tokens.back(), drafts));
}

// Sends all calls before it waits for the first.
void RemoteDrafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  const auto depth_of = [](const DraftRequest& request) {
    return std::min(request.budget.max_depth, request.budget.max_nodes - 1);
  };
  const auto begin = parts_.timer->Now();
  for (const DraftRequest& request : requests) {
    StreamOf(request).Prepare(request.tokens, depth_of(request));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    trees[i] = TreeFrom(StreamOf(requests[i]).Take(), requests[i]);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& request = requests[i];
    const auto path = LongestPath(ForestOfTree(trees[i]), options_.client.end_tokens);
    // The next round has its own limit of depth, so this request uses the largest.
    StreamOf(request).Ahead(request.tokens, path,
                            static_cast<int>(path.size()) + options_.client.max_length);
    Drafted& drafted = sequences_[request.sequence];
    drafted.path_length = static_cast<int>(path.size());
    drafted.proposed = parts_.timer->Now();
  }
  proposing_seconds_ = SecondsBetween(begin, parts_.timer->Now());
}

void RemoteDrafter::Observe(SequenceId sequence, std::span<const int32_t> emitted) {
  const auto at = sequences_.find(sequence);
  if (at == sequences_.end() || at->second.path_length < 0 || !at->second.stream) return;
  Drafted& drafted = at->second;
  drafted.stream->Observe(
      {.path_length = drafted.path_length,
       .accepted = std::max(0, static_cast<int>(emitted.size()) - 1),
       .wait_seconds = proposing_seconds_,
       .target_seconds = SecondsBetween(drafted.proposed, parts_.timer->Now())});
  drafted.path_length = -1;
}

}  // namespace talon
