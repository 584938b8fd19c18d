// The places of a schema document: where each is, for messages and $ref.
#ifndef TALON_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_
#define TALON_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_

#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "base/status.h"

namespace talon {

class SchemaDocument {
 public:
  // The document must outlive it.
  explicit SchemaDocument(const OrderedJson* root);

  // "#/properties/a", for messages.
  std::string PointerOf(const OrderedJson* schema) const;
  // The error "#/properties/a/keyword: why".
  Status Refuse(const OrderedJson* schema, std::string_view keyword, std::string_view why) const;
  // Smaller for what comes first in the document; 0 for what is not part of it.
  int OrderOf(const OrderedJson* schema) const;
  // The place that a $ref of schema `from` names.
  Result<const OrderedJson*> Resolve(const OrderedJson* from, const std::string& reference) const;

 private:
  struct Place {
    const OrderedJson* parent = nullptr;
    std::string key;
    int order = 0;  // in the document
  };
  const OrderedJson* root_;
  std::unordered_map<const OrderedJson*, Place> places_;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_SCHEMA_DOCUMENT_H_
