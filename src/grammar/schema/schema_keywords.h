// The keywords of single schemas: what they say of each type, and of parts of arrays and objects.
#ifndef TALON_GRAMMAR_SCHEMA_SCHEMA_KEYWORDS_H_
#define TALON_GRAMMAR_SCHEMA_SCHEMA_KEYWORDS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "grammar/expr.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_pieces.h"
#include "grammar/schema/schema_strings.h"

namespace talon {

class SchemaKeywords {
 public:
  // All must outlive it.
  SchemaKeywords(const SchemaDocument* document, SchemaStrings* strings, ExprPool* pool)
      : document_(*document), strings_(*strings), pool_(*pool) {}

  // The types that a schema allows, and whether its numbers must be integers.
  Status ReadTypes(const OrderedJson& schema, std::vector<Piece::Kind>* kinds, bool* integer) const;
  Status ReadNumber(const OrderedJson& schema, NumberSpec* spec) const;
  Status ReadString(const OrderedJson& schema, StringSpec* spec) const;
  Status ReadArray(const OrderedJson* schema, ArraySpec* spec) const;
  Status ReadObject(const OrderedJson* schema, ObjectSpec* spec) const;

  // What the item at an index must match; the same for all from PrefixLength on.
  static Conjunction Item(const ArraySpec& array, size_t index);
  static size_t PrefixLength(const ArraySpec& array);

  // What the value of a key must match.
  Result<Conjunction> Property(const ObjectSpec& object, const std::string& name) const;
  // Declared keys in the order of the schemas, then required ones that none declares.
  std::vector<std::string> DeclaredNames(const ObjectSpec& object) const;
  // Keys that are not declared, by which patterns they match, and what their values must match.
  struct OtherKeys {
    ExprId key = 0;  // with its quotes
    Conjunction value;
  };
  // `names`: what propertyNames allows; null if the object does not have it.
  Result<std::vector<OtherKeys>> Others(const ObjectSpec& object, const Pieces* names) const;

 private:
  // Compiles it, so that a mistake is named with its place.
  Status CheckPattern(const std::string& pattern, const OrderedJson* place) const;

  struct PatternSchema {
    const OrderedJson* layer = nullptr;
    const OrderedJson* schema = nullptr;
    ExprId expr = 0;
  };
  Result<std::vector<PatternSchema>> PatternsOf(const ObjectSpec& object) const;
  // Keys without quotes that no schema declares and that `names` allows, as a conjunction.
  Result<std::vector<ExprId>> Undeclared(const ObjectSpec& object, const Pieces* names) const;

  const SchemaDocument& document_;
  SchemaStrings& strings_;
  ExprPool& pool_;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_SCHEMA_KEYWORDS_H_
