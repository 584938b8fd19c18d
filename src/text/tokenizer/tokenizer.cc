#include "text/tokenizer/tokenizer.h"

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "text/limits.h"
#include "text/special_tokens.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/json_fields.h"
#include "text/unicode.h"

namespace talon {
namespace {

// A component that is missing or null leaves `component` as it is.
template <typename Component>
Status ParseOptional(const JsonFields& root, const char* key, Component* component) {
  const Json* value = root.Find(key);
  if (value == nullptr) return OkStatus();
  TALON_ASSIGN_OR_RETURN(*component, Component::Parse(*value, root.Where(key)));
  return OkStatus();
}

}  // namespace

Status Tokenizer::Supported() { return OkStatus(); }

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  TALON_ASSIGN_OR_RETURN(auto tokenizer, Parse(json, path));
  const std::string dir = std::filesystem::path(path).parent_path().string();
  TALON_ASSIGN_OR_RETURN(const OrderedJson special, ReadSpecialTokens(dir));
  if (const auto eos = special.find("eos_token"); eos != special.end()) {
    tokenizer->eos_token_id_ = tokenizer->TokenId(eos->get_ref<const std::string&>());
  }
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view json,
                                                    const std::string& what) {
  TALON_ASSIGN_OR_RETURN(const Json root, ParseJson(json, what));
  TALON_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::From(root, what));
  TALON_ASSIGN_OR_RETURN(const Json* model_json, fields.Object("model"));
  TALON_ASSIGN_OR_RETURN(BpeModel model, BpeModel::Parse(*model_json, fields.Where("model")));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(model)));
  TALON_RETURN_IF_ERROR(tokenizer->ParseComponents(root, what));
  TALON_RETURN_IF_ERROR(tokenizer->IndexTokens(what));
  TALON_RETURN_IF_ERROR(tokenizer->CheckPostProcessor(what));
  return tokenizer;
}

Status Tokenizer::ParseComponents(const Json& root, const std::string& what) {
  TALON_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::From(root, what));
  TALON_RETURN_IF_ERROR(ParseOptional(fields, "normalizer", &normalizer_));
  TALON_RETURN_IF_ERROR(ParseOptional(fields, "pre_tokenizer", &pre_tokenizer_));
  TALON_RETURN_IF_ERROR(ParseOptional(fields, "post_processor", &post_processor_));
  TALON_RETURN_IF_ERROR(ParseOptional(fields, "decoder", &decoder_));
  const Json* added = fields.Find("added_tokens");
  if (added == nullptr) return OkStatus();
  TALON_ASSIGN_OR_RETURN(added_tokens_,
                         AddedTokens::Parse(*added, normalizer_, fields.Where("added_tokens")));
  return OkStatus();
}

Status Tokenizer::IndexToken(const std::string& text, int32_t id, const std::string& what) {
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(id + 1);
  if (tokens_[id].data() != nullptr && tokens_[id] != text) {
    return InvalidArgument("{}: tokens \"{}\" and \"{}\" have the same id {}", what, tokens_[id],
                           text, id);
  }
  tokens_[id] = text;
  return OkStatus();
}

Status Tokenizer::IndexTokens(const std::string& what) {
  for (const auto& [text, id] : model_.vocabulary()) {
    TALON_RETURN_IF_ERROR(IndexToken(text, id, what));
  }
  for (const AddedToken& token : added_tokens_.tokens()) {
    const std::optional<int32_t> known = TokenId(token.content);
    if (known && *known != token.id) {
      return InvalidArgument("{}: token \"{}\" has two ids, {} and {}", what, token.content, *known,
                             token.id);
    }
    TALON_RETURN_IF_ERROR(IndexToken(token.content, token.id, what));
    added_ids_.emplace(token.content, token.id);
  }
  special_.assign(tokens_.size(), false);
  for (const AddedToken& token : added_tokens_.tokens()) {
    if (token.special) special_[token.id] = true;
  }
  return OkStatus();
}

Status Tokenizer::CheckPostProcessor(const std::string& what) const {
  for (const auto* ids : {&post_processor_.prefix(), &post_processor_.suffix()}) {
    for (const int32_t id : *ids) {
      if (!Token(id)) return InvalidArgument("{}: post_processor: no token has id {}", what, id);
    }
  }
  return OkStatus();
}

struct Tokenizer::Encoding {
  std::string_view mark;  // left out of the text; empty: none
  BpeScratch scratch;
  std::vector<int32_t> ids;
};

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                               bool add_special_tokens) const {
  return EncodeMarked(text, /*mark=*/"", add_special_tokens);
}

Result<std::vector<int32_t>> Tokenizer::EncodeMarked(std::string_view text, std::string_view mark,
                                                     bool add_special_tokens) const {
  if (text.size() > kMaxInputBytes) {
    return InvalidArgument("text: {} bytes, limit {}", text.size(), kMaxInputBytes);
  }
  if (const std::optional<size_t> offset = FindInvalidUtf8(text)) {
    return InvalidArgument("text: not valid UTF-8 at byte {} (0x{:02X})", *offset,
                           static_cast<unsigned char>(text[*offset]));
  }
  Encoding encoding{.mark = mark};
  if (add_special_tokens) encoding.ids = post_processor_.prefix();
  for (const AddedTokens::Part& part : added_tokens_.Split(text, /*normalized=*/false)) {
    if (part.token != nullptr) {
      encoding.ids.push_back(part.token->id);
    } else {
      TALON_RETURN_IF_ERROR(EncodePart(text.substr(part.span.begin, part.span.size()),
                                       part.span.begin == 0, &encoding));
    }
  }
  if (add_special_tokens) {
    encoding.ids.insert(encoding.ids.end(), post_processor_.suffix().begin(),
                        post_processor_.suffix().end());
  }
  return std::move(encoding.ids);
}

Status Tokenizer::EncodePart(std::string_view text, bool starts_input, Encoding* encoding) const {
  std::string normalized(text);
  TALON_RETURN_IF_ERROR(normalizer_.Apply(&normalized));
  for (const AddedTokens::Part& part : added_tokens_.Split(normalized, /*normalized=*/true)) {
    if (part.token != nullptr) {
      encoding->ids.push_back(part.token->id);
      continue;
    }
    WordList list;
    list.text = normalized.substr(part.span.begin, part.span.size());
    RemoveMarks(encoding->mark, &list.text);
    if (list.text.empty()) continue;
    list.words = {{{0, list.text.size()}, starts_input && part.span.begin == 0}};
    TALON_RETURN_IF_ERROR(pre_tokenizer_.Apply(&list));
    for (const WordList::Word& word : list.words) {
      TALON_RETURN_IF_ERROR(model_.Encode(list.WordText(word), &encoding->scratch, &encoding->ids));
    }
  }
  return OkStatus();
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  StreamDecoder decoder(this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  text += decoder.Flush();
  return text;
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  const auto added = added_ids_.find(token);
  if (added != added_ids_.end()) return added->second;
  return model_.TokenId(token);
}

std::optional<std::string_view> Tokenizer::Token(int32_t id) const {
  if (id < 0 || id >= vocab_size() || tokens_[id].data() == nullptr) return std::nullopt;
  return tokens_[id];
}

std::string Tokenizer::TokenBytes(int32_t id) const {
  const std::optional<std::string_view> token = Token(id);
  if (!token) return {};
  std::string text = decoder_.TokenText(*token, /*first_token=*/false);
  if (decoder_.bytes() == TextDecoder::Bytes::kByteFallback) {
    if (const std::optional<char> byte = TextDecoder::FallbackByte(text)) return {*byte};
  }
  decoder_.Finish(/*first_token=*/false, &text);
  return text;
}

bool Tokenizer::IsSpecial(int32_t id) const { return id >= 0 && id < vocab_size() && special_[id]; }

}  // namespace talon
