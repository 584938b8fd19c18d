// A grammar for one vocabulary: which tokens may follow, where a token leads, what is forced.
//
// States are numbers of the automaton's. One thread at a time; requests with the same grammar share
// a matcher on the engine's thread.
#ifndef TALON_GRAMMAR_MATCHER_H_
#define TALON_GRAMMAR_MATCHER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/grammar_spec.h"
#include "grammar/token_trie.h"

namespace talon {

class Matcher {
 public:
  using StateId = Automaton::StateId;
  static constexpr StateId kDead = Automaton::kDead;

  // The tokens that the vocabulary's tokenizer makes of a text; empty if it makes none.
  using Encoder = std::function<std::vector<int32_t>(const std::string&)>;

  // The trie must outlive it. `encode` may be empty. REQUIRES: the grammar was made by a compiler
  // of this folder.
  Matcher(std::unique_ptr<Grammar> grammar, const TokenTrie* trie, Encoder encode = {});

  // What it was compiled from, for those who send it on; kNone where it is not known.
  const GrammarSpec& spec() const { return spec_; }
  void set_spec(GrammarSpec spec) { spec_ = std::move(spec); }

  StateId start() const { return automaton_.start(); }
  // kDead: the token is not allowed.
  StateId Next(StateId state, int32_t token);
  bool Accepts(StateId state) const { return automaton_.Accepts(state); }
  // The tokens that may follow, text only: the end is allowed iff Accepts(). Valid until the next
  // call.
  const TokenMask& Allowed(StateId state);
  // The bytes that must follow, at most `most` of them.
  std::string Forced(StateId state, size_t most);
  // What the tokenizer makes of the bytes that must follow (without one: the longest tokens), at
  // most `most` tokens. The last one may be part of a longer token, if what follows is free.
  struct ForcedToken {
    int32_t token = 0;
    bool last = false;  // the last of the bytes that must follow
  };
  std::vector<ForcedToken> ForcedTokens(StateId state, int most);
  // Whether every byte of the token had to be what it is.
  bool IsForced(StateId state, int32_t token) {
    const std::string& bytes = trie_.bytes(token);
    return !bytes.empty() && Forced(state, bytes.size()) == bytes;
  }

  bool exhausted() const { return automaton_.exhausted(); }
  // It has grown so much that new answers should have a fresh one. From any thread.
  bool worn() const { return worn_.load(std::memory_order_relaxed); }
  Automaton& automaton() { return automaton_; }

 private:
  void NoteWear();
  TokenMask Compute(StateId state);
  void Walk(StateId state, const TokenTrie::Slice& slice, TokenMask* mask);
  std::vector<int32_t> Tokens(std::string_view bytes) const;

  std::unique_ptr<Grammar> grammar_;
  const TokenTrie& trie_;
  Encoder encode_;
  GrammarSpec spec_;
  Automaton automaton_;
  ExprId plain_;
  std::atomic<bool> worn_ = false;
  std::vector<StateId> path_;  // path of a walk
  // Masks by state, least recently used last.
  std::list<std::pair<StateId, TokenMask>> masks_;
  std::unordered_map<StateId, std::list<std::pair<StateId, TokenMask>>::iterator> mask_of_;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_MATCHER_H_
