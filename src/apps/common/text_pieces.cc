#include "apps/common/text_pieces.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace talon {

TextPieces::TextPieces(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                       const TextOptions& options)
    : decoder_(tokenizer, options.skip_special_tokens, options.shown_special_tokens) {
  decoder_.ContinueAfter(prompt);
  if (options.keep_first_space) decoder_.KeepFirstSpace();
}

std::vector<TextPiece> TextPieces::Split(const RequestUpdate& update) {
  for (const EmittedToken& token : update.tokens) {
    waiting_.push_back({decoder_.Push(token.token), token.drafted});
  }
  if (update.finish != FinishReason::kNone) waiting_.push_back({decoder_.Flush(), false});
  std::vector<TextPiece> pieces;
  for (size_t left = update.text.size(); left > 0 && !waiting_.empty();) {
    TextPiece& first = waiting_.front();
    std::string shown = first.text.substr(0, left);
    left -= shown.size();
    first.text.erase(0, shown.size());
    if (!shown.empty()) pieces.push_back({std::move(shown), first.drafted});
    if (first.text.empty()) waiting_.pop_front();
  }
  return pieces;
}

std::string Coloured(const TextPiece& piece) {
  return piece.drafted ? "\033[32m" + piece.text + "\033[0m" : piece.text;
}

bool ShowsColours() {
  const char* refused = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (refused == nullptr || *refused == '\0');
}

}  // namespace talon
