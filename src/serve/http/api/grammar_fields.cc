#include "serve/http/api/grammar_fields.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/json.h"

namespace talon {
namespace {

using Kind = GrammarSpec::Kind;

// Collects what one member asks for. Schemas keep the order of their properties, so members are
// parsed again from their text.
class Reader {
 public:
  Reader(JsonReader* body, GrammarSpec* grammar, std::string* param)
      : body_(*body), grammar_(*grammar), param_(*param) {}

  void Schema(const std::string& key, const OrderedJson& schema) {
    // Some clients send a schema as text.
    Set(key, Kind::kJsonSchema, schema.is_string() ? schema.get<std::string>() : schema.dump());
  }
  void Text(const std::string& key, Kind kind, const OrderedJson& text) {
    if (!text.is_string()) return body_.Fail(key, "must be a string");
    if (!text.get_ref<const std::string&>().empty()) Set(key, kind, text.get<std::string>());
  }
  void Choice(const std::string& key, const OrderedJson& list) {
    if (!list.is_array() || list.empty()) return body_.Fail(key, "must be a list of strings");
    for (const OrderedJson& one : list) {
      if (!one.is_string()) return body_.Fail(key, "must be a list of strings");
      grammar_.choices.push_back(one.get<std::string>());
    }
    Set(key, Kind::kChoice, "");
  }

  // {"type": "json_schema", "json_schema": {"schema": ...}}; `flat`: without the inner object.
  // llama.cpp's clients write {"type": "json_object", "schema": ...}.
  void Format(const std::string& key, const OrderedJson& format, bool flat) {
    const auto type = format.is_object() ? format.find("type") : format.end();
    if (type == format.end() || !type->is_string()) return body_.Fail(key, "needs a type");
    if (*type != "text" && *type != "json_object" && *type != "json_schema") {
      return body_.Fail(key, fmt::format("type {}, must be text, json_object or json_schema",
                                         Shown(Json(type->get<std::string>()))));
    }
    const auto inner = flat ? format.end() : format.find("json_schema");
    const bool nested = *type == "json_schema" && inner != format.end();
    const OrderedJson& holder = nested ? *inner : format;
    if (!holder.is_object()) return body_.Fail(key + ".json_schema", "must be an object");
    CheckMembers(key, format, nested);
    if (nested) CheckMembers(key + ".json_schema", holder, /*nested=*/false);
    if (*type == "text") return;
    const auto schema = holder.find("schema");
    if (schema != holder.end() && !schema->is_null()) {
      Schema(key, *schema);
    } else if (*type == "json_object") {
      Set(key, Kind::kJsonObject, "");
    } else {
      body_.Fail(key, "needs a schema");
    }
    Spacing(key, format);
    if (nested) Spacing(key + ".json_schema", holder);
  }

  void Structured(const std::string& key, const OrderedJson& outputs) {
    if (!outputs.is_object()) return body_.Fail(key, "must be an object");
    for (const auto& [name, value] : outputs.items()) {
      const std::string place = key + "." + name;
      if (value.is_null()) continue;
      if (name == "json") {
        Schema(place, value);
      } else if (name == "json_object") {
        if (value == true) Set(place, Kind::kJsonObject, "");
      } else if (name == "regex" || name == "grammar") {
        Text(place, name == "regex" ? Kind::kRegex : Kind::kGbnf, value);
      } else if (name == "choice") {
        Choice(place, value);
      } else if (name == "disable_any_whitespace") {
        if (value == true) grammar_.spacing = JsonSpacing::kCompact;
      } else if (name != "whitespace" && name != "disable_fallback" && value != false) {
        body_.Fail(place, "not supported", "unsupported_parameter");
      }
    }
    Spacing(key, outputs);
  }

 private:
  void Set(const std::string& key, Kind kind, std::string source) {
    if (grammar_.kind != Kind::kNone) {
      return body_.Fail(key, "an answer can have one grammar only, and another is given");
    }
    grammar_.kind = kind;
    grammar_.source = std::move(source);
    param_ = key;
  }
  void CheckMembers(const std::string& key, const OrderedJson& object, bool nested) {
    for (const auto& [name, value] : object.items()) {
      const bool known = name == "type" || name == "name" || name == "description" ||
                         name == "schema" || name == "strict" || name == "whitespace" ||
                         (nested && name == "json_schema");
      if (!known && !value.is_null()) {
        body_.Fail(key + "." + name, "not supported", "unsupported_parameter");
      }
    }
  }
  void Spacing(const std::string& key, const OrderedJson& object) {
    const auto spacing = object.find("whitespace");
    if (spacing == object.end() || spacing->is_null()) return;
    if (*spacing != "compact" && *spacing != "flexible") {
      return body_.Fail(key + ".whitespace", "must be compact or flexible");
    }
    grammar_.spacing = *spacing == "compact" ? JsonSpacing::kCompact : JsonSpacing::kFlexible;
  }

  JsonReader& body_;
  GrammarSpec& grammar_;
  std::string& param_;
};

}  // namespace

void ReadGrammar(JsonReader* body, GrammarSpec* grammar, std::string* param) {
  Reader reader(body, grammar, param);
  const auto each = [&](const std::string& key, const auto& read) {
    if (const OrderedJson value = FindOrdered(key, body); !value.is_null()) read(key, value);
  };
  each("response_format",
       [&](const auto& key, const auto& value) { reader.Format(key, value, /*flat=*/false); });
  each("structured_outputs",
       [&](const auto& key, const auto& value) { reader.Structured(key, value); });
  for (const char* name : {"json_schema", "guided_json"}) {
    each(name, [&](const auto& key, const auto& value) { reader.Schema(key, value); });
  }
  for (const char* name : {"regex", "guided_regex"}) {
    each(name, [&](const auto& key, const auto& value) { reader.Text(key, Kind::kRegex, value); });
  }
  for (const char* name : {"grammar", "guided_grammar"}) {
    each(name, [&](const auto& key, const auto& value) { reader.Text(key, Kind::kGbnf, value); });
  }
  for (const char* name : {"choice", "guided_choice"}) {
    each(name, [&](const auto& key, const auto& value) { reader.Choice(key, value); });
  }
}

void ReadTextFormat(JsonReader* body, GrammarSpec* grammar, std::string* param) {
  const OrderedJson text = FindOrdered("text", body);
  const auto format = text.is_object() ? text.find("format") : text.end();
  if (format == text.end() || format->is_null()) return;
  Reader(body, grammar, param).Format("text.format", *format, /*flat=*/true);
}

}  // namespace talon
