// How well a model predicts a text: the measure of what formats of weights and KV cost.
#ifndef TALON_MODEL_PERPLEXITY_H_
#define TALON_MODEL_PERPLEXITY_H_

#include <cstdint>
#include <span>

#include "base/status.h"
#include "compute/backend.h"
#include "model/decoder.h"

namespace talon {

// exp of the mean of -log p(token) over all tokens but the first. REQUIRES: two tokens or more, and
// a decoder that gives logits for kPerplexityRows rows of a pass.
inline constexpr int kPerplexityRows = 128;
Result<double> Perplexity(Decoder* decoder, Backend* backend, std::span<const int32_t> tokens,
                          DType kv_dtype);

}  // namespace talon

#endif  // TALON_MODEL_PERPLEXITY_H_
