#include "model/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/single_sequence.h"

namespace talon {
namespace {

// -log p(token) under one row of logits.
double Surprise(std::span<const float> logits, int32_t token) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return std::log(sum) - (logits[token] - top);
}

}  // namespace

Result<double> Perplexity(Decoder* decoder, Backend* backend, std::span<const int32_t> tokens,
                          DType kv_dtype) {
  TALON_CHECK(tokens.size() >= 2);
  const size_t vocabulary = decoder->config().vocab_size;
  TALON_ASSIGN_OR_RETURN(
      SingleSequence sequence,
      SingleSequence::Create(
          decoder, backend,
          {.max_tokens = static_cast<int>(tokens.size()), .max_tree = 1, .kv_dtype = kv_dtype}));
  const size_t scored = tokens.size() - 1;
  double total = 0;
  for (size_t first = 0; first < scored; first += kPerplexityRows) {
    const size_t count = std::min<size_t>(kPerplexityRows, scored - first);
    TALON_ASSIGN_OR_RETURN(const auto rows, sequence.Append(tokens.subspan(first, count)));
    for (size_t i = 0; i < count; ++i) {
      const auto row = std::span(rows.logits).subspan(i * vocabulary, vocabulary);
      total += Surprise(row, tokens[first + i + 1]);
    }
  }
  return std::exp(total / static_cast<double>(scored));
}

}  // namespace talon
