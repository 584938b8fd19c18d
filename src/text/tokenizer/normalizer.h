// The "normalizer" of tokenizer.json: what happens to text before it is cut into words.
// Immutable after Parse(); thread-safe.
#ifndef TALON_TEXT_TOKENIZER_NORMALIZER_H_
#define TALON_TEXT_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

// One step; see normalizer.cc for the kinds.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual Status Apply(std::string* text) const = 0;
};

class Normalizer {
 public:
  // Does nothing.
  Normalizer() = default;
  // Kinds: NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip, Sequence.
  static Result<Normalizer> Parse(const Json& value, const std::string& where);

  // REQUIRES: valid UTF-8; stays so.
  Status Apply(std::string* text) const;

 private:
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_NORMALIZER_H_
