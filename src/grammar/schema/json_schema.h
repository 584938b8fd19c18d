// From a JSON schema to a grammar.
#ifndef TALON_GRAMMAR_SCHEMA_JSON_SCHEMA_H_
#define TALON_GRAMMAR_SCHEMA_JSON_SCHEMA_H_

#include <memory>
#include <string_view>

#include "base/json_fwd.h"
#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/schema/json_text.h"

namespace talon {

// Every text of the grammar is JSON that the schema accepts. Properties come in the schema's order.
// What cannot be enforced in full is refused with its JSON pointer:
// "#/properties/a/uniqueItems: not supported".
Result<std::unique_ptr<Grammar>> CompileJsonSchema(std::string_view schema,
                                                   JsonSpacing spacing = JsonSpacing::kFlexible);
// The same as a rule of a grammar that has others too; its number.
Result<int> AddJsonSchema(std::string_view schema, JsonSpacing spacing, Grammar* grammar);
// Any JSON object (response_format json_object).
Result<std::unique_ptr<Grammar>> AnyJsonObject(JsonSpacing spacing = JsonSpacing::kFlexible);

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_JSON_SCHEMA_H_
