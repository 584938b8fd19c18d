// Typed look-ups in a JSON object, with the source and the key in every message.
#ifndef TALON_MODEL_CONFIG_FIELDS_H_
#define TALON_MODEL_CONFIG_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "base/valid_values.h"

namespace talon {

// A value as messages show it: on one line, cut after 40 bytes.
std::string BriefJson(const Json& value);
std::string Lowercase(std::string text);  // ASCII

// A JSON number without a fraction. REQUIRES: the ends of the range are exact in a double.
Status CheckWholeNumber(std::string_view name, const Json& value, const Range& range);

// Reads the fields of one object, which must outlive it. A key that is null counts as missing, as
// in Hugging Face files. The look-ups without a default require the key.
class ConfigFields {
 public:
  // `what` names the object in messages: "dir/config.json", "dir/config.json: rope_scaling".
  ConfigFields(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  const std::string& what() const { return what_; }
  const Json* Find(const std::string& key) const;  // null if missing
  // Whether the key is there at all, be it null.
  bool Has(const std::string& key) const;

  // A whole number in [low, high].
  Result<int> Int(const std::string& key, int low, int high) const;
  Result<int> Int(const std::string& key, int low, int high, int default_value) const;
  // A finite number above zero.
  Result<double> Positive(const std::string& key) const;
  Result<double> Positive(const std::string& key, double default_value) const;
  Result<std::optional<double>> OptionalPositive(const std::string& key) const;
  Result<bool> Bool(const std::string& key, bool default_value) const;
  Result<std::string> String(const std::string& key, const std::string& default_value) const;
  // A whole number or a list of them, all >= 0; empty if missing.
  Result<std::vector<int>> IntList(const std::string& key) const;

 private:
  const Json& object_;
  std::string what_;
};

}  // namespace talon

#endif  // TALON_MODEL_CONFIG_FIELDS_H_
