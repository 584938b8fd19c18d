// The figures of `talon bench longcontext`, from what was run to JSON. The tables are made of it
// (longcontext_report.h), so both always say the same.
#ifndef TALON_APPS_BENCH_LONGCONTEXT_FIGURES_H_
#define TALON_APPS_BENCH_LONGCONTEXT_FIGURES_H_

#include <cstdint>
#include <vector>

#include "apps/bench/longcontext.h"
#include "apps/bench/roofline.h"
#include "base/json_fwd.h"
#include "model/config.h"

namespace talon {

// All variants on the same prompts of one length, interleaved.
struct ContextRuns {
  int context = 0;
  std::vector<std::vector<Sample>> samples;  // [variants][repeats * prompts], never empty
};

// Speed, acceptance and reads of each variant. Ratios are medians over prompts and repeats, each
// between neighbours in time. `lossless`: acceptance itself keeps the text, so every variant but
// fast ones must give plain decoding's.
Json ContextJson(const std::vector<Variant>& variants, const ContextRuns& runs, bool lossless);

// How often a full pass chose the token that partial verification had chosen, by distance since the
// last full pass, over all contexts.
Json AgreementJson(const std::vector<Variant>& variants, const std::vector<ContextRuns>& runs);

// The median partial step of each variant at the largest context against the same at 4096 tokens,
// or at the smallest context that has partial steps. `contexts` as ContextJson made them.
Json FlatnessJson(const Json& contexts);

// KV cache of partial verification against the full twin's, by context.
Json MemoryJson(const std::vector<Variant>& variants, const std::vector<ContextRuns>& runs);

struct RooflineInput {
  ModelConfig model;
  double weight_bytes = 0;  // bytes that a pass reads
  int block_size = 16;
  Peaks peaks;
};

// Per emitted token: bytes, operations, the bound that follows and the time it took. Variants with
// partial steps have two rows, whose sum is the variant's time per token.
Json RooflineJson(const RooflineInput& input, const std::vector<Variant>& variants,
                  const ContextRuns& runs);

}  // namespace talon

#endif  // TALON_APPS_BENCH_LONGCONTEXT_FIGURES_H_
