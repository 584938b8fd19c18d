#include "text/tokenizer/json_fields.h"

#include "base/json.h"
#include "text/limits.h"

namespace talon {
namespace {

// The member, which must be there and of that kind.
Result<const Json*> Required(const JsonFields& fields, const char* key, Json::value_t kind,
                             const char* kind_name) {
  const Json* member = fields.Find(key);
  if (member == nullptr) return InvalidArgument("{}: missing", fields.Where(key));
  if (member->type() != kind) {
    return InvalidArgument("{}: expected {}, found {}", fields.Where(key), kind_name,
                           member->type_name());
  }
  return member;
}

}  // namespace

Result<JsonFields> JsonFields::From(const Json& value, std::string where) {
  if (!value.is_object()) {
    return InvalidArgument("{}: expected an object, found {}", where, value.type_name());
  }
  return JsonFields(&value, std::move(where));
}

const Json* JsonFields::Find(const char* key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

Result<const Json*> JsonFields::Array(const char* key) const {
  return Required(*this, key, Json::value_t::array, "an array");
}

Result<const Json*> JsonFields::Object(const char* key) const {
  return Required(*this, key, Json::value_t::object, "an object");
}

Result<std::string> JsonFields::String(const char* key) const {
  TALON_ASSIGN_OR_RETURN(const Json* member,
                         Required(*this, key, Json::value_t::string, "a string"));
  return member->get_ref<const std::string&>();
}

Result<int64_t> JsonFields::Integer(const char* key) const {
  const Json* member = Find(key);
  if (member == nullptr) return InvalidArgument("{}: missing", Where(key));
  const bool too_large =
      member->is_number_unsigned() && member->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!member->is_number_integer() || too_large) {
    return InvalidArgument("{}: expected an integer, found {}", Where(key),
                           member->is_number() ? member->dump() : member->type_name());
  }
  return member->get<int64_t>();
}

Result<bool> JsonFields::Bool(const char* key, bool fallback) const {
  if (Find(key) == nullptr) return fallback;
  TALON_ASSIGN_OR_RETURN(const Json* member,
                         Required(*this, key, Json::value_t::boolean, "true or false"));
  return member->get<bool>();
}

Status VisitComponents(const Json& value, const std::string& where, const char* members_key,
                       const ComponentVisitor& visit) {
  TALON_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::From(value, where));
  Result<std::string> type = fields.String("type");
  if (!type.ok()) return type.status();
  if (*type != "Sequence") return visit(*type, fields);
  TALON_ASSIGN_OR_RETURN(const Json* members, fields.Array(members_key));
  for (size_t i = 0; i < members->size(); ++i) {
    const std::string place = fmt::format("{}[{}]", fields.Where(members_key), i);
    TALON_RETURN_IF_ERROR(VisitComponents((*members)[i], place, members_key, visit));
  }
  return OkStatus();
}

Result<int32_t> TokenIdFromJson(const Json& value, const std::string& where) {
  // A number past int64 reads as negative.
  const bool fits =
      value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= kMaxTokenId;
  if (!fits) {
    return InvalidArgument("{}: token id {} is not an integer in [0, {}]", where,
                           value.is_number() ? value.dump() : std::string(value.type_name()),
                           kMaxTokenId);
  }
  return value.get<int32_t>();
}

}  // namespace talon
