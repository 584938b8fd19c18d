// Typed reads of the members of a JSON object that a client sent. The first error is kept, with the
// parameter's name; reads after it do nothing, so that a caller checks once, at the end.
#ifndef TALON_SERVE_HTTP_API_JSON_READER_H_
#define TALON_SERVE_HTTP_API_JSON_READER_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "serve/http/api/api_error.h"
#include "serve/http/api/json_body.h"

namespace talon {

class JsonReader {
 public:
  // Refers to `value`, which must outlive it. `name` is the object's own.
  JsonReader(const Json& value, const std::string& name);
  // The whole body, whose members are parsed when they are read.
  explicit JsonReader(JsonBody* body) : body_(body) {}

  // Null if the member is missing or JSON null.
  const Json* Find(const std::string& key);
  bool Has(const std::string& key) { return Find(key) != nullptr; }
  // Takes a member out of the body. REQUIRES: it is there, and this reads the whole body.
  Json Take(const std::string& key);
  // The member's JSON as the client wrote it. REQUIRES: it is there, and this reads the whole body.
  std::string_view Text(const std::string& key) const;
  // It was read or looked for.
  bool Knows(const std::string& key) const { return known_.count(key) > 0; }

  // A missing or null member leaves *out as it is.
  void Read(const std::string& key, bool* out);
  void Read(const std::string& key, std::string* out);
  void Read(const std::string& key, int64_t low, int64_t high, int* out);
  void Read(const std::string& key, int64_t low, int64_t high, int64_t* out);
  void Read(const std::string& key, double low, double high, float* out);

  // Members that are ignored.
  void Ignore(std::initializer_list<const char*> keys);
  // A member that may only have its neutral value.
  void Refuse(const std::string& key, const Json& harmless);
  // Members that were not read are an error.
  void RefuseUnknown();

  // `problem` follows the parameter's name: "-1, must be 0 to 2".
  void Fail(const std::string& key, const std::string& problem, const std::string& code = "");
  // An error of a member's own reader.
  void Fail(const ApiError& error);
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  std::string Name(const std::string& key) const;
  const Json* FindInBody(const std::string& key);
  bool ReadInteger(const std::string& key, int64_t low, int64_t high, int64_t* out);

  JsonBody* body_ = nullptr;
  const Json* object_ = nullptr;  // null: the body
  std::string prefix_;            // "speculative." within that object
  std::set<std::string, std::less<>> known_;
  std::optional<ApiError> error_;
};

// A member of the whole body with the keys of its objects in the order they were written; null if
// it is missing.
OrderedJson FindOrdered(const std::string& key, JsonReader* body);

// A value as messages show it: short, cut where it is long.
std::string Shown(const Json& value);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_JSON_READER_H_
