// The tokens that end a text: what a model's config names, and what its tokenizer does.
#ifndef TALON_ENGINE_END_TOKENS_H_
#define TALON_ENGINE_END_TOKENS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/config.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

// Fine-tuned models often have another end token than the model they came from, and say so in
// tokenizer_config.json alone. `tokenizer` may be null.
inline std::vector<int32_t> EndTokens(const ModelConfig& config, const Tokenizer* tokenizer) {
  std::vector<int32_t> ids(config.eos_token_ids.begin(), config.eos_token_ids.end());
  const std::optional<int32_t> own =
      tokenizer == nullptr ? std::nullopt : tokenizer->eos_token_id();
  const bool known = !own || *own >= config.vocab_size || std::ranges::find(ids, *own) != ids.end();
  if (!known) ids.push_back(*own);
  return ids;
}

}  // namespace talon

#endif  // TALON_ENGINE_END_TOKENS_H_
