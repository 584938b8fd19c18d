// From what a request asks its answer to match, to a matcher over the model's vocabulary.
#ifndef TALON_ENGINE_GRAMMAR_COMPILER_H_
#define TALON_ENGINE_GRAMMAR_COMPILER_H_

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "grammar/grammar_spec.h"
#include "grammar/matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

// Bounds how many grammars are compiled at a time, and how many wait for that. Thread-safe.
class CompileQueue {
 public:
  static constexpr int kMostRunning = 4;
  static constexpr int kMostWaiting = 256;
  static constexpr std::chrono::seconds kLongestWait{30};

  struct Leave {
    void operator()(CompileQueue* queue) const;
  };
  using Turn = std::unique_ptr<CompileQueue, Leave>;

  // Waits for a turn, which lasts as long as the result. Unavailable: too many wait, or for too
  // long.
  Result<Turn> Enter();
  int waiting() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable left_;
  int running_ = 0;
  int waiting_ = 0;
};

// Thread-safe. The vocabulary's prefix tree is made when the first grammar needs it. Matchers of
// the grammars used last are kept, with all they have found out, for requests that ask for the
// same: these must run on one thread, the engine's.
class GrammarCompiler {
 public:
  // The tokenizer must outlive the compiler, and the compiler all its matchers. Null: the model has
  // none, and every grammar is refused.
  explicit GrammarCompiler(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Null for kNone. InvalidArgument says what is wrong with the grammar or not supported,
  // Unavailable that too many are being compiled.
  Result<std::shared_ptr<Matcher>> Compile(const GrammarSpec& spec) const;

  static constexpr size_t kMostKept = 32;
  CompileQueue& queue() const { return queue_; }

 private:
  const TokenTrie& Trie() const;
  // Null: not kept, or worn.
  std::shared_ptr<Matcher> Find(const GrammarSpec& spec) const;

  const Tokenizer* tokenizer_;
  mutable CompileQueue queue_;
  mutable std::mutex mutex_;
  // Guarded by mutex_; used last first, shared with requests that run.
  mutable std::list<std::shared_ptr<Matcher>> kept_;
  mutable std::once_flag made_;
  mutable std::unique_ptr<TokenTrie> trie_;
};

}  // namespace talon

#endif  // TALON_ENGINE_GRAMMAR_COMPILER_H_
