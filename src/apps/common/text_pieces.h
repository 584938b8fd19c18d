// A request's text cut at its tokens, so that each part can be shown by where it came from.
#ifndef TALON_APPS_COMMON_TEXT_PIECES_H_
#define TALON_APPS_COMMON_TEXT_PIECES_H_

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

struct TextPiece {
  std::string text;
  bool drafted = false;  // else the model's own
};

class TextPieces {
 public:
  // The text goes on after `prompt`. The options are the request's.
  TextPieces(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
             const TextOptions& options = {});

  // The text of an update in pieces. It may lag behind its tokens; their pieces wait until it
  // arrives.
  std::vector<TextPiece> Split(const RequestUpdate& update);

 private:
  StreamDecoder decoder_;
  std::deque<TextPiece> waiting_;
};

// What a terminal shows of a piece: drafts are green.
std::string Coloured(const TextPiece& piece);

// Standard output is a terminal whose user does not refuse colours (NO_COLOR).
bool ShowsColours();

}  // namespace talon

#endif  // TALON_APPS_COMMON_TEXT_PIECES_H_
