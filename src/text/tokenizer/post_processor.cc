#include "text/tokenizer/post_processor.h"

#include "base/json.h"

namespace talon {
namespace {

// The ids that a template's special token stands for.
Result<std::vector<int32_t>> SpecialTokenIds(const Json& special_tokens, const std::string& name,
                                             const std::string& where) {
  const auto found = special_tokens.find(name);
  if (found == special_tokens.end()) {
    return InvalidArgument("{}: no special token \"{}\"", where, name);
  }
  TALON_ASSIGN_OR_RETURN(const JsonFields token, JsonFields::From(*found, where + "." + name));
  TALON_ASSIGN_OR_RETURN(const Json* list, token.Array("ids"));
  std::vector<int32_t> ids;
  for (const Json& value : *list) {
    TALON_ASSIGN_OR_RETURN(const int32_t id, TokenIdFromJson(value, token.Where("ids")));
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

Status PostProcessor::AddTemplate(const JsonFields& fields) {
  TALON_ASSIGN_OR_RETURN(const Json* pieces, fields.Array("single"));
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  int sequences = 0;
  for (size_t i = 0; i < pieces->size(); ++i) {
    const std::string where = fmt::format("{}[{}]", fields.Where("single"), i);
    TALON_ASSIGN_OR_RETURN(const JsonFields piece, JsonFields::From((*pieces)[i], where));
    const bool is_sequence = piece.Find("Sequence") != nullptr;
    const char* kind = is_sequence ? "Sequence" : "SpecialToken";
    TALON_ASSIGN_OR_RETURN(const Json* body, piece.Object(kind));
    TALON_ASSIGN_OR_RETURN(const JsonFields part, JsonFields::From(*body, piece.Where(kind)));
    TALON_ASSIGN_OR_RETURN(const std::string id, part.String("id"));
    if (is_sequence) {
      if (id != "A") return InvalidArgument("{}: \"{}\" is not A", part.Where("id"), id);
      ++sequences;
      continue;
    }
    TALON_ASSIGN_OR_RETURN(const Json* special, fields.Object("special_tokens"));
    TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                           SpecialTokenIds(*special, id, fields.Where("special_tokens")));
    std::vector<int32_t>& side = sequences == 0 ? before : after;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (sequences != 1) {
    return InvalidArgument("{}: the text appears {} times, not once", fields.Where("single"),
                           sequences);
  }
  prefix_.insert(prefix_.begin(), before.begin(), before.end());
  suffix_.insert(suffix_.end(), after.begin(), after.end());
  return OkStatus();
}

Result<PostProcessor> PostProcessor::Parse(const Json& value, const std::string& where) {
  PostProcessor processor;
  const auto add = [&](const std::string& type, const JsonFields& fields) -> Status {
    if (type == "TemplateProcessing") return processor.AddTemplate(fields);
    if (type == "ByteLevel") return OkStatus();
    return Unimplemented("{}: post-processor \"{}\" is not supported", fields.where(), type);
  };
  TALON_RETURN_IF_ERROR(VisitComponents(value, where, "processors", add));
  return processor;
}

}  // namespace talon
