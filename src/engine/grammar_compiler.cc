#include "engine/grammar_compiler.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "grammar/gbnf.h"
#include "grammar/part_grammar.h"
#include "grammar/schema/json_schema.h"

namespace talon {
namespace {

Result<std::unique_ptr<Grammar>> GrammarOf(const GrammarSpec& spec, const TokenTrie& trie) {
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonObject:
      return AnyJsonObject(spec.spacing);
    case GrammarSpec::Kind::kJsonSchema:
      return CompileJsonSchema(spec.source, spec.spacing);
    case GrammarSpec::Kind::kRegex:
      return RegexGrammar(spec.source);
    case GrammarSpec::Kind::kGbnf:
      return CompileGbnf(spec.source);
    case GrammarSpec::Kind::kChoice:
      return ChoiceGrammar(spec.choices);
    case GrammarSpec::Kind::kParts:
      return CompileParts(spec.part, spec.spacing, trie);
    case GrammarSpec::Kind::kNone:
      break;
  }
  return InvalidArgument("no grammar");
}

// "" for a token that is neither special nor ever part of a text.
std::string BytesOf(const Tokenizer& tokenizer, int32_t id) {
  if (tokenizer.IsSpecial(id)) return SpecialBytes(tokenizer.Token(id).value_or(""));
  std::string bytes = tokenizer.TokenBytes(id);
  return bytes.find(kSpecialByte) == std::string::npos ? bytes : "";
}

}  // namespace

Result<CompileQueue::Turn> CompileQueue::Enter() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto free = [this] { return running_ < kMostRunning; };
  bool entered = free();
  if (!entered && waiting_ < kMostWaiting) {
    ++waiting_;
    entered = left_.wait_for(lock, kLongestWait, free);
    --waiting_;
  }
  if (!entered) return Unavailable("too many grammars are being compiled; try again");
  ++running_;
  return Turn(this);
}

void CompileQueue::Leave::operator()(CompileQueue* queue) const {
  {
    const std::lock_guard<std::mutex> lock(queue->mutex_);
    --queue->running_;
  }
  queue->left_.notify_one();
}

int CompileQueue::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_;
}

const TokenTrie& GrammarCompiler::Trie() const {
  std::call_once(made_, [this] {
    std::vector<std::string> bytes(static_cast<size_t>(tokenizer_->vocab_size()));
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      bytes[id] = BytesOf(*tokenizer_, id);
    }
    trie_ = std::make_unique<TokenTrie>(std::move(bytes));
  });
  return *trie_;
}

Result<std::shared_ptr<Matcher>> GrammarCompiler::Compile(const GrammarSpec& spec) const {
  if (spec.kind == GrammarSpec::Kind::kNone) return std::shared_ptr<Matcher>();
  if (tokenizer_ == nullptr) {
    return InvalidArgument("the model has no tokenizer, so its answers cannot follow a grammar");
  }
  if (auto matcher = Find(spec)) return matcher;
  TALON_ASSIGN_OR_RETURN(const CompileQueue::Turn turn, queue_.Enter());
  if (auto matcher = Find(spec)) return matcher;  // compiled by another request meanwhile
  TALON_ASSIGN_OR_RETURN(auto grammar, GrammarOf(spec, Trie()));
  const auto encode = [tokenizer = tokenizer_](const std::string& text) {
    auto tokens = tokenizer->Encode(text, /*add_special_tokens=*/false);
    return tokens.ok() ? std::move(*tokens) : std::vector<int32_t>();
  };
  auto matcher = std::make_shared<Matcher>(std::move(grammar), &Trie(), encode);
  matcher->set_spec(spec);
  std::shared_ptr<Matcher> oldest;  // ends after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  kept_.push_front(matcher);
  if (kept_.size() > kMostKept) {
    oldest = std::move(kept_.back());
    kept_.pop_back();
  }
  return matcher;
}

std::shared_ptr<Matcher> GrammarCompiler::Find(const GrammarSpec& spec) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(kept_, [](const auto& matcher) { return matcher->worn(); });
  const auto at = std::ranges::find(kept_, spec, &Matcher::spec);
  if (at == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, at);
  return kept_.front();
}

}  // namespace talon
