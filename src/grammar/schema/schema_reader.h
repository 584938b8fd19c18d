// Reads places of a schema document into pieces (schema_pieces.h).
#ifndef TALON_GRAMMAR_SCHEMA_SCHEMA_READER_H_
#define TALON_GRAMMAR_SCHEMA_SCHEMA_READER_H_

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "grammar/expr.h"
#include "grammar/schema/schema_pieces.h"

namespace talon {

class SchemaReader {
 public:
  // The document and the pool must outlive it.
  SchemaReader(const OrderedJson* root, ExprPool* pool);

  Result<Pieces> Read(const Conjunction& schemas);

  // What the item at an index must match; the same for all from PrefixLength on.
  Result<Conjunction> Item(const ArraySpec& array, size_t index);
  static size_t PrefixLength(const ArraySpec& array);

  // What the value of a key must match.
  Result<Conjunction> Property(const ObjectSpec& object, const std::string& name);
  // Whether propertyNames allows the key.
  Result<bool> NameAllowed(const ObjectSpec& object, const std::string& name) {
    if (object.names.empty()) return true;
    return Matches(OrderedJson(name), object.names);
  }
  // Declared keys in the order of the schemas, then required ones that none declares.
  std::vector<std::string> DeclaredNames(const ObjectSpec& object) const;
  // Keys that are not declared, by which patterns they match, and what their values must match.
  struct OtherKeys {
    ExprId key = 0;  // with its quotes
    Conjunction value;
  };
  Result<std::vector<OtherKeys>> Others(const ObjectSpec& object);

  // The strings with their quotes.
  Result<ExprId> StringExpr(const StringSpec& spec);

  // "#/properties/a", for messages.
  std::string PointerOf(const OrderedJson* schema) const;

 private:
  Result<Pieces> ReadOne(const OrderedJson* schema);
  Result<Pieces> ReadInside(const Conjunction& schemas);
  Result<Pieces> ReadObject(const OrderedJson* schema);
  Status ReadTypes(const OrderedJson& schema, std::vector<Piece::Kind>* kinds, bool* integer) const;
  Result<Pieces> ReadTyped(const OrderedJson* schema);
  Result<Pieces> ReadLiterals(const OrderedJson& schema);
  Status ApplyCombinations(const OrderedJson* schema, Pieces* pieces);
  Result<Pieces> ReadUnion(const OrderedJson* list, bool exclusive);
  Result<const OrderedJson*> Resolve(const OrderedJson* from, const std::string& reference);

  Status ReadNumber(const OrderedJson& schema, NumberSpec* spec) const;
  Status ReadString(const OrderedJson& schema, StringSpec* spec) const;
  Status ReadArray(const OrderedJson* schema, ArraySpec* spec) const;
  Status ReadObjectKeywords(const OrderedJson* schema, ObjectSpec* spec) const;

  Result<Pieces> IntersectUnions(const Pieces& a, const Pieces& b);
  Result<bool> Disjoint(const Pieces& a, const Pieces& b);
  Result<bool> IsImpossible(const Piece& piece);
  Result<bool> Matches(const OrderedJson& value, const Conjunction& schemas);
  Result<bool> MatchesPiece(const OrderedJson& value, const Piece& piece);
  Result<bool> MatchesArray(const OrderedJson& value, const ArraySpec& array);
  Result<bool> MatchesObject(const OrderedJson& value, const ObjectSpec& object);

  // Strings without their quotes.
  Result<ExprId> StringContent(const StringSpec& spec);
  ExprId AnyCharacter();
  Result<ExprId> PatternExpr(const std::string& pattern);
  Status Refuse(const OrderedJson* schema, std::string_view keyword, std::string_view why) const;

  const OrderedJson* root_;
  ExprPool& pool_;
  struct Place {
    const OrderedJson* parent = nullptr;
    std::string key;
    int order = 0;  // in the document
  };
  std::unordered_map<const OrderedJson*, Place> places_;
  std::map<std::string, ExprId> patterns_;
  std::vector<const OrderedJson*> reading_;  // schemas on the way, to see a $ref to itself
  ExprId any_character_ = ExprPool::kNone;   // of a string
  int depth_ = 0;
  int64_t work_ = 0;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_SCHEMA_READER_H_
