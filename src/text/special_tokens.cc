#include "text/special_tokens.h"

#include "base/file.h"
#include "base/json.h"
#include "base/ordered_json.h"

namespace talon {
namespace {

constexpr const char* kNames[] = {"bos_token", "cls_token", "eos_token", "mask_token",
                                  "pad_token", "sep_token", "unk_token"};

}  // namespace

Result<OrderedJson> ReadConfigFile(const std::string& path) {
  if (!FileExists(path)) return OrderedJson::object();
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TALON_ASSIGN_OR_RETURN(OrderedJson json, ParseOrderedJson(text, path));
  if (!json.is_object()) return InvalidArgument("{}: expected an object", path);
  return json;
}

Result<OrderedJson> ReadSpecialTokens(const std::string& model_dir) {
  OrderedJson tokens = OrderedJson::object();
  for (const char* file : {"/tokenizer_config.json", "/special_tokens_map.json"}) {
    TALON_ASSIGN_OR_RETURN(const OrderedJson config, ReadConfigFile(model_dir + file));
    for (const char* name : kNames) {
      const OrderedJson text = TextMember(config, name);
      if (!text.is_null() && !tokens.contains(name)) tokens[name] = text;
    }
  }
  return tokens;
}

OrderedJson TextMember(const OrderedJson& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  if (found == object.end()) return nullptr;
  if (found->is_object() && found->contains("content")) return TextMember(*found, "content");
  return found->is_string() ? *found : OrderedJson();
}

}  // namespace talon
