#include "grammar/schema/schema_strings.h"

#include <utility>
#include <vector>

#include "grammar/regex.h"
#include "grammar/schema/json_formats.h"
#include "grammar/schema/json_text.h"

namespace talon {

Result<ExprId> SchemaStrings::Pattern(const std::string& pattern) {
  if (const auto at = patterns_.find(pattern); at != patterns_.end()) return at->second;
  const CharacterWriter json = [this](const CodePoints& set) { return JsonCharacter(set, &pool_); };
  TALON_ASSIGN_OR_RETURN(const ExprId expr, CompilePattern(pattern, json, &pool_));
  return patterns_[pattern] = expr;
}

ExprId SchemaStrings::AnyCharacter() {
  if (any_character_ == ExprPool::kNone) {
    any_character_ = JsonCharacter(CodePoints::All(), &pool_);
  }
  return any_character_;
}

Result<ExprId> SchemaStrings::Quoted(const StringSpec& spec) {
  TALON_ASSIGN_OR_RETURN(const ExprId content, Content(spec));
  return JsonQuoted(content, &pool_);
}

Result<ExprId> SchemaStrings::Content(const StringSpec& spec) {
  std::vector<ExprId> parts = {
      pool_.Repeat(AnyCharacter(), static_cast<int>(spec.min), static_cast<int>(spec.max))};
  for (const std::string& pattern : spec.patterns) {
    TALON_ASSIGN_OR_RETURN(const ExprId expr, Pattern(pattern));
    parts.push_back(expr);
  }
  for (const std::string& format : spec.formats) {
    const std::string whole = fmt::format("^(?:{})$", JsonFormatRegex(format));
    TALON_ASSIGN_OR_RETURN(const ExprId expr, Pattern(whole));
    parts.push_back(expr);
  }
  const bool unbounded = spec.min == 0 && spec.max < 0;
  if (unbounded && parts.size() > 1) parts.erase(parts.begin());
  return pool_.And(std::move(parts));
}

}  // namespace talon
