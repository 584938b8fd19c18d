// The text of a request as its tokens arrive: detokeniser and stop strings together. Copyable, so a
// step can try tokens and take them back.
#ifndef TALON_ENGINE_OUTPUT_TEXT_H_
#define TALON_ENGINE_OUTPUT_TEXT_H_

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/stop_strings.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

struct TextOptions {
  bool skip_special_tokens = true;
  bool include_stop = false;                  // the text ends with the stop string, not before it
  bool keep_first_space = false;              // even where nothing comes before the text
  std::vector<int32_t> shown_special_tokens;  // which are not skipped
};

class OutputText {
 public:
  // The text goes on after `prompt`. Without a tokenizer there is no text and stop strings never
  // match.
  OutputText(const Tokenizer* tokenizer, StopMatcher stops, std::span<const int32_t> prompt = {},
             const TextOptions& options = {})
      : matcher_(std::move(stops)), include_stop_(options.include_stop) {
    if (tokenizer == nullptr) return;
    decoder_.emplace(tokenizer, options.skip_special_tokens, options.shown_special_tokens);
    decoder_->ContinueAfter(prompt);
    if (options.keep_first_space) decoder_->KeepFirstSpace();
  }

  // Adds a token. True if its text completes a stop string; nothing after that counts.
  bool Push(int32_t token) {
    if (!decoder_) return false;
    return PushText(decoder_->Push(token));
  }
  // No more tokens: releases what was held back, unless a stop string ended the text.
  void Finish() {
    if (!decoder_ || matcher_.stopped() || PushText(decoder_->Flush())) return;
    ready_ += matcher_.Flush();
  }
  // Text that became final since the last call.
  std::string TakeText() { return std::exchange(ready_, {}); }

 private:
  bool PushText(const std::string& text) {
    const StopMatcher::Output output = matcher_.Push(text);
    ready_ += output.text;
    if (output.stopped && include_stop_) ready_ += matcher_.matched_string();
    return output.stopped;
  }

  std::optional<StreamDecoder> decoder_;
  StopMatcher matcher_;
  bool include_stop_;
  std::string ready_;
};

}  // namespace talon

#endif  // TALON_ENGINE_OUTPUT_TEXT_H_
