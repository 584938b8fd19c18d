// Reads places of a schema document into pieces (schema_pieces.h).
#ifndef TALON_GRAMMAR_SCHEMA_SCHEMA_READER_H_
#define TALON_GRAMMAR_SCHEMA_SCHEMA_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "grammar/expr.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_keywords.h"
#include "grammar/schema/schema_pieces.h"
#include "grammar/schema/schema_strings.h"

namespace talon {

class SchemaReader {
 public:
  // The document and the pool must outlive it.
  SchemaReader(const OrderedJson* root, ExprPool* pool)
      : document_(root), strings_(pool), keywords_(&document_, &strings_, pool), pool_(*pool) {}
  SchemaReader(const SchemaReader&) = delete;
  SchemaReader& operator=(const SchemaReader&) = delete;

  Result<Pieces> Read(const Conjunction& schemas);

  // Whether propertyNames allows the key.
  Result<bool> NameAllowed(const ObjectSpec& object, const std::string& name) {
    if (object.names.empty()) return true;
    return Matches(OrderedJson(name), object.names);
  }
  // SchemaKeywords::Others with the names that the object allows.
  Result<std::vector<SchemaKeywords::OtherKeys>> OtherKeysOf(const ObjectSpec& object);

  const SchemaDocument& document() const { return document_; }
  const SchemaKeywords& keywords() const { return keywords_; }
  SchemaStrings& strings() { return strings_; }

 private:
  Result<Pieces> ReadOne(const OrderedJson* schema);
  Result<Pieces> ReadInside(const Conjunction& schemas);
  Result<Pieces> ReadObject(const OrderedJson* schema);
  Result<Pieces> ReadTyped(const OrderedJson* schema);
  Result<Pieces> ReadLiterals(const OrderedJson& schema);
  Status ApplyCombinations(const OrderedJson* schema, Pieces* pieces);
  Result<Pieces> ReadUnion(const OrderedJson* list, bool exclusive);

  Result<Pieces> IntersectUnions(const Pieces& a, const Pieces& b);
  Result<bool> Disjoint(const Pieces& a, const Pieces& b);
  Result<bool> IsImpossible(const Piece& piece);
  Result<bool> Matches(const OrderedJson& value, const Conjunction& schemas);
  Result<bool> MatchesPiece(const OrderedJson& value, const Piece& piece);
  Result<bool> MatchesArray(const OrderedJson& value, const ArraySpec& array);
  Result<bool> MatchesObject(const OrderedJson& value, const ObjectSpec& object);

  SchemaDocument document_;
  SchemaStrings strings_;
  SchemaKeywords keywords_;
  ExprPool& pool_;
  std::vector<const OrderedJson*> reading_;  // schemas on the way, to see a $ref to itself
  int depth_ = 0;
  int64_t work_ = 0;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_SCHEMA_READER_H_
