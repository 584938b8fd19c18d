// Expressions for the strings of a schema. Each pattern is compiled once.
#ifndef TALON_GRAMMAR_SCHEMA_SCHEMA_STRINGS_H_
#define TALON_GRAMMAR_SCHEMA_SCHEMA_STRINGS_H_

#include <map>
#include <string>

#include "base/status.h"
#include "grammar/expr.h"
#include "grammar/schema/schema_pieces.h"

namespace talon {

class SchemaStrings {
 public:
  // The pool must outlive it.
  explicit SchemaStrings(ExprPool* pool) : pool_(*pool) {}

  // The strings with their quotes.
  Result<ExprId> Quoted(const StringSpec& spec);
  // The strings without their quotes.
  Result<ExprId> Content(const StringSpec& spec);
  // Strings that match a pattern, without their quotes.
  Result<ExprId> Pattern(const std::string& pattern);
  // One character of a string, however JSON spells it.
  ExprId AnyCharacter();

 private:
  ExprPool& pool_;
  std::map<std::string, ExprId> patterns_;
  ExprId any_character_ = ExprPool::kNone;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_SCHEMA_STRINGS_H_
