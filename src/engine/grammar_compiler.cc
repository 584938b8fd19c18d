#include "engine/grammar_compiler.h"

#include <string>
#include <utility>
#include <vector>

#include "grammar/gbnf.h"
#include "grammar/json_schema.h"

namespace talon {
namespace {

Result<std::unique_ptr<Grammar>> GrammarOf(const GrammarSpec& spec) {
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
    case GrammarSpec::Kind::kNone:
      break;
  }
  return InvalidArgument("no grammar");
}

}  // namespace

const TokenTrie& GrammarCompiler::Trie() const {
  std::call_once(made_, [this] {
    std::vector<std::string> bytes(static_cast<size_t>(tokenizer_->vocab_size()));
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (!tokenizer_->IsSpecial(id)) bytes[id] = tokenizer_->TokenBytes(id);
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
  TALON_ASSIGN_OR_RETURN(auto grammar, GrammarOf(spec));
  return std::make_shared<Matcher>(std::move(grammar), &Trie());
}

}  // namespace talon
