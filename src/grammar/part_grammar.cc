#include "grammar/part_grammar.h"

#include <string>
#include <utility>
#include <vector>

#include "grammar/code_points.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "grammar/schema/json_schema.h"

namespace talon {
namespace {

using PartKind = GrammarPart::Kind;

class PartCompiler {
 public:
  PartCompiler(JsonSpacing spacing, const TokenTrie& trie, Grammar* grammar)
      : spacing_(spacing), trie_(trie), grammar_(*grammar), pool_(grammar->exprs()) {}

  Result<Symbol> Compile(const GrammarPart& part) {
    switch (part.kind) {
      case PartKind::kLiteral:
        return Terminal(pool_.Literal(part.text));
      case PartKind::kMarker:
        return Terminal(pool_.Literal(MarkerBytes(part.text)));
      case PartKind::kText:
        return Terminal(FreeText(part));
      case PartKind::kSchema:
        return Schema(part);
      case PartKind::kRegex: {
        TALON_ASSIGN_OR_RETURN(const ExprId expr, CompileRegex(part.text, &pool_));
        return Terminal(expr);
      }
      case PartKind::kGbnf: {
        TALON_ASSIGN_OR_RETURN(const int rule, AddGbnf(part.text, &grammar_));
        return RuleSymbol(rule);
      }
      case PartKind::kSequence: {
        const int rule = grammar_.AddRule("sequence");
        Grammar::Alternative symbols;
        for (const GrammarPart& each : part.parts) {
          TALON_ASSIGN_OR_RETURN(const Symbol symbol, Compile(each));
          symbols.push_back(symbol);
        }
        grammar_.AddAlternative(rule, std::move(symbols));
        return RuleSymbol(rule);
      }
      case PartKind::kChoice:
        return Choice(part.parts);
      case PartKind::kRepeat: {
        const int rule = grammar_.AddRule("repeat");
        TALON_ASSIGN_OR_RETURN(const Symbol symbol, Compile(part.parts[0]));
        grammar_.AddAlternative(rule, {symbol});
        grammar_.AddAlternative(rule, {symbol, RuleSymbol(rule)});
        return RuleSymbol(rule);
      }
    }
    return InvalidArgument("an unknown part of a grammar");
  }

 private:
  std::string MarkerBytes(const std::string& text) const {
    std::string special = SpecialBytes(text);
    return trie_.Find(special) >= 0 ? special : text;
  }

  // Texts alone are one terminal: an automaton cannot follow thousands of alternatives.
  Result<Symbol> Choice(const std::vector<GrammarPart>& parts) {
    std::vector<std::string> texts;
    for (const GrammarPart& each : parts) {
      if (each.kind == PartKind::kLiteral) texts.push_back(each.text);
    }
    if (!texts.empty() && texts.size() == parts.size()) {
      TALON_ASSIGN_OR_RETURN(const ExprId expr, CompileChoice(std::move(texts), &pool_));
      return Terminal(expr);
    }
    const int rule = grammar_.AddRule("choice");
    for (const GrammarPart& each : parts) {
      TALON_ASSIGN_OR_RETURN(const Symbol symbol, Compile(each));
      grammar_.AddAlternative(rule, {symbol});
    }
    return RuleSymbol(rule);
  }

  ExprId FreeText(const GrammarPart& part) {
    const ExprId any = pool_.Repeat(Utf8Of(CodePoints::All(), &pool_), 0, ExprPool::kNoLimit);
    std::vector<ExprId> all = {any};
    for (const std::string& text : part.without) {
      all.push_back(pool_.Not(pool_.Sequence({any, pool_.Literal(text), any})));
    }
    if (!part.text.empty()) {
      const ExprId space = Utf8Of({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}}, &pool_);
      const ExprId spaces = pool_.Repeat(space, 0, ExprPool::kNoLimit);
      all.push_back(pool_.Not(pool_.Sequence({spaces, pool_.Literal(part.text), any})));
    }
    return all.size() == 1 ? any : pool_.And(std::move(all));
  }

  Result<Symbol> Schema(const GrammarPart& part) {
    // Tried apart, so that a schema that fails leaves nothing in the grammar.
    const bool known = !part.lenient || CompileJsonSchema(part.text, spacing_).ok();
    const std::string_view schema = known ? std::string_view(part.text) : R"({"type": "object"})";
    const auto rule = AddJsonSchema(schema, spacing_, &grammar_);
    if (!rule.ok()) return rule.status().WithContext(part.name);
    return RuleSymbol(*rule);
  }

  JsonSpacing spacing_;
  const TokenTrie& trie_;
  Grammar& grammar_;
  ExprPool& pool_;
};

}  // namespace

Result<std::unique_ptr<Grammar>> CompileParts(const GrammarPart& part, JsonSpacing spacing,
                                              const TokenTrie& trie) {
  auto grammar = std::make_unique<Grammar>();
  TALON_ASSIGN_OR_RETURN(const Symbol symbol,
                         PartCompiler(spacing, trie, grammar.get()).Compile(part));
  const int start = grammar->AddRule("answer");
  grammar->AddAlternative(start, {symbol});
  TALON_RETURN_IF_ERROR(grammar->Finish(start));
  return grammar;
}

}  // namespace talon
