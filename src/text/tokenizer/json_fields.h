// Typed reads of one JSON object. Every error names the place: "tokenizer.json: model.vocab: ...".
#ifndef TALON_TEXT_TOKENIZER_JSON_FIELDS_H_
#define TALON_TEXT_TOKENIZER_JSON_FIELDS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

// Refers to the Json it was made from, which must outlive it.
class JsonFields {
 public:
  // `where` is the place of `value` in messages.
  static Result<JsonFields> From(const Json& value, std::string where);

  const std::string& where() const { return where_; }
  // The place of one member.
  std::string Where(const char* key) const { return where_ + "." + key; }

  // Null if the member is missing or JSON null.
  const Json* Find(const char* key) const;
  // Fails if the member is missing, null, or of another kind.
  Result<const Json*> Array(const char* key) const;
  Result<const Json*> Object(const char* key) const;
  Result<std::string> String(const char* key) const;
  Result<int64_t> Integer(const char* key) const;
  // A missing or null member gives `fallback`.
  Result<bool> Bool(const char* key, bool fallback) const;

 private:
  JsonFields(const Json* value, std::string where) : value_(value), where_(std::move(where)) {}

  const Json* value_;
  std::string where_;
};

// Components of a tokenizer have a "type"; a "Sequence" lists others under `members_key`. Calls
// visit(type, fields) for `value`, or for everything in the sequence, in order.
using ComponentVisitor = std::function<Status(const std::string& type, const JsonFields& fields)>;
Status VisitComponents(const Json& value, const std::string& where, const char* members_key,
                       const ComponentVisitor& visit);

// A token id from a number in JSON: an integer in [0, kMaxTokenId].
Result<int32_t> TokenIdFromJson(const Json& value, const std::string& where);

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_JSON_FIELDS_H_
