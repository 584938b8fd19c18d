#include "python/results.h"

#include <pybind11/stl.h>

#include "python/raise.h"

namespace talon {

namespace py = pybind11;
using py::arg;

namespace {

py::dict StatsToPython(const RequestStats& stats) {
  py::list tried, accepted;
  for (int depth = 0; depth < RequestStats::kMaxDepth && stats.tried_at_depth[depth] > 0; ++depth) {
    tried.append(stats.tried_at_depth[depth]);
    accepted.append(stats.accepted_at_depth[depth]);
  }
  return py::dict(
      arg("prompt_tokens") = stats.prompt_tokens, arg("cached_tokens") = stats.cached_tokens,
      arg("passes") = stats.passes, arg("partial_passes") = stats.partial_passes,
      arg("emitted") = stats.emitted, arg("drafted") = stats.drafted,
      arg("accepted") = stats.accepted, arg("tau") = stats.tau(), arg("tried_by_depth") = tried,
      arg("accepted_by_depth") = accepted,
      arg("first_token_seconds") = stats.first_token_seconds < 0
                                       ? py::object(py::none())
                                       : py::float_(stats.first_token_seconds),
      arg("prompt_seconds") = stats.prompt_seconds, arg("decode_seconds") = stats.decode_seconds,
      arg("draft_seconds") = stats.draft_seconds, arg("verify_seconds") = stats.verify_seconds,
      arg("prefix_tokens_read") = stats.prefix_tokens_read, arg("lossy") = stats.lossy);
}

py::object FinishToPython(FinishReason finish) {
  if (finish == FinishReason::kNone) return py::none();
  return py::str(FinishReasonName(finish));
}

// tokens, drafted and log_probs of what a request emitted.
void AddTokens(const std::vector<EmittedToken>& emitted, bool logprobs, py::dict* out) {
  py::list tokens, drafted, log_probs;
  for (const EmittedToken& token : emitted) {
    tokens.append(token.token);
    drafted.append(token.drafted);
    if (!logprobs) continue;
    py::list top;
    for (const TopLogProb& entry : token.top) {
      top.append(py::make_tuple(entry.token, entry.log_prob));
    }
    log_probs.append(py::make_tuple(token.token, token.log_prob, top));
  }
  (*out)["tokens"] = tokens;
  (*out)["drafted"] = drafted;
  (*out)["log_probs"] = logprobs ? py::object(log_probs) : py::none();
}

}  // namespace

py::dict TreeToPython(const VerifiedTree& tree) {
  return py::dict(arg("tokens") = tree.tokens, arg("parents") = tree.parents,
                  arg("path") = tree.path);
}

py::dict UpdateToPython(const RequestUpdate& update, bool logprobs) {
  py::dict out(arg("text") = ToPythonText(update.text),
               arg("finish_reason") = FinishToPython(update.finish));
  AddTokens(update.tokens, logprobs, &out);
  out["tree"] = update.tree ? py::object(TreeToPython(*update.tree)) : py::none();
  return out;
}

py::dict ResultToPython(const GenerateResult& result, bool logprobs) {
  py::dict out(arg("text") = ToPythonText(result.text),
               arg("finish_reason") = FinishToPython(result.finish), arg("seed") = result.seed,
               arg("stats") = StatsToPython(result.stats));
  AddTokens(result.tokens, logprobs, &out);
  return out;
}

KvReport KvReport::Of(const Engine& engine) {
  const KvCache& kv = engine.kv();
  KvReport report{.block_size = kv.shape().block_size,
                  .blocks = kv.shape().num_blocks,
                  .free_blocks = kv.pool().free_blocks(),
                  .cached_blocks = kv.pool().cached_blocks(),
                  .used_blocks = kv.pool().used_blocks(),
                  .running = engine.num_running(),
                  .waiting = engine.num_waiting(),
                  .bytes = static_cast<int64_t>(kv.bytes()),
                  .bytes_per_token = static_cast<int64_t>(kv.shape().BytesPerToken())};
  for (const Sequence* sequence : engine.Sequences()) {
    report.sequences.push_back({.id = sequence->id,
                                .tokens = static_cast<int>(sequence->tokens.size()),
                                .committed = sequence->committed_len,
                                .provisional = sequence->tail_len,
                                .blocks = sequence->blocks});
  }
  report.integrity = engine.CheckIntegrity();
  return report;
}

py::dict KvReport::ToPython() const {
  py::list rows;
  for (const Row& row : sequences) {
    rows.append(py::dict(arg("id") = row.id, arg("tokens") = row.tokens,
                         arg("committed") = row.committed, arg("provisional") = row.provisional,
                         arg("blocks") = row.blocks));
  }
  return py::dict(arg("block_size") = block_size, arg("blocks") = blocks,
                  arg("free_blocks") = free_blocks, arg("cached_blocks") = cached_blocks,
                  arg("used_blocks") = used_blocks, arg("running") = running,
                  arg("waiting") = waiting, arg("bytes") = bytes,
                  arg("bytes_per_token") = bytes_per_token, arg("sequences") = rows);
}

}  // namespace talon
