// Compares what a model chooses with a text that it is made to write, and how far from its last
// full pass it does so: each choice is judged after the same tokens, whatever the view.
#ifndef TALON_APPS_BENCH_SPECPV_FORCED_TEXT_H_
#define TALON_APPS_BENCH_SPECPV_FORCED_TEXT_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "spec/specpv/governor.h"
#include "spec/token_tree.h"

namespace talon {

// One request in fast mode, watched. Used by the engine's thread.
class ForcedText {
 public:
  explicit ForcedText(std::vector<int32_t> text) : text_(std::move(text)) {}

  // Replaces the choices on the text's path through the tree by the text (EditChoices).
  void Edit(const TokenTree& tree, std::span<int32_t> choices);
  // After the step: its choices count as those of a full or a partial pass.
  void Update(const RequestUpdate& update);

  const AgreementByDistance& partial() const { return partial_; }
  // Choices of full passes other than the text's.
  int64_t full_disagreed() const { return full_disagreed_; }

 private:
  std::vector<int32_t> text_;
  size_t written_ = 0;
  std::vector<bool> agrees_;  // choices of the step under way, by depth
  int provisional_ = 0;       // tokens since the last full pass
  int64_t partial_passes_ = 0;
  AgreementByDistance partial_;
  int64_t full_disagreed_ = 0;
};

}  // namespace talon

#endif  // TALON_APPS_BENCH_SPECPV_FORCED_TEXT_H_
