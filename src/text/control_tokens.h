// The tokens by which a chat template tells turns apart, and how to keep the text of messages from
// forging them.
#ifndef TALON_TEXT_CONTROL_TOKENS_H_
#define TALON_TEXT_CONTROL_TOKENS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/marked_text.h"
#include "text/tokenizer/byte_trie.h"

namespace talon {

class ChatTemplate;
class Tokenizer;

// Immutable; use from any thread.
class ControlTokens {
 public:
  // None.
  ControlTokens() = default;
  // Those that the tokenizer calls special.
  static ControlTokens Special(const Tokenizer& tokenizer);
  // For messages: the special tokens and all that the template writes around messages, but not
  // those that it looks for inside of them, such as "</think>".
  static ControlTokens Of(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

  // Marks the spellings of control tokens in all strings of these values, keys included. Returns
  // the mark; empty if there was nothing to mark. Fails if every character that could be the mark
  // occurs in them.
  Result<std::string> Mark(std::initializer_list<OrderedJson*> values) const;
  Result<MarkedText> Mark(std::string text) const;

  // Whether a token that separates turns could be put together out of parts of the value's strings.
  bool CouldSeparateTurns(const OrderedJson& value) const;
  // How many tokens that separate turns the text spells, marked ones not counted.
  int CountSeparators(std::string_view text) const;

 private:
  void Add(const std::string& spelling, bool separates_turns);
  // Calls visit with the places after which a mark belongs, in order.
  template <typename Visit>
  void ForEachPlace(std::string_view text, const Visit& visit) const;
  bool OccursIn(const OrderedJson& value) const;
  void MarkText(std::string_view mark, std::string* text) const;
  void MarkAll(std::string_view mark, OrderedJson* value) const;

  ByteTrie spellings_;  // spellings of all control tokens
  ByteTrie separators_;
  size_t longest_ = 0;  // bytes of a spelling
};

// The token that ends the assistant's turns, as the template writes it; none if it writes no added
// token there.
std::optional<int32_t> EndOfTurn(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace talon

#endif  // TALON_TEXT_CONTROL_TOKENS_H_
