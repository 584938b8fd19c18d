#include "setup/chat.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "text/builtin_templates.h"
#include "text/chat_options.h"

namespace talon {
namespace {

constexpr const char* kAutoToolFormat = "auto";  // as the chat template shows it

// In harmony the end of a message is not that of the answer.
std::vector<int32_t> EndsOfTurn(const Chat& chat, const LoadedModel& model) {
  std::vector<int32_t> ends;
  if (chat.tool_format == ToolFormat::kHarmony) {
    for (const AddedToken& token : model.tokenizer->added_tokens()) {
      if (token.content == "<|return|>" || token.content == "<|call|>") ends.push_back(token.id);
    }
  } else if (const auto end = EndOfTurn(chat.chat_template, *model.tokenizer)) {
    ends.push_back(*end);
  }
  std::erase_if(ends, [&](int32_t end) { return end >= model.target->config().vocab_size; });
  return ends;
}

}  // namespace

Result<std::optional<Chat>> LoadChat(const ServeConfig& serve, const LoadedModel& model) {
  if (model.tokenizer == nullptr) return std::optional<Chat>();
  std::optional<ChatTemplate> chat_template;
  if (serve.chat_template.empty()) {
    TALON_ASSIGN_OR_RETURN(chat_template, ChatTemplate::Load(model.name));
  } else {
    TALON_ASSIGN_OR_RETURN(chat_template,
                           ChatTemplate::LoadFileOrName(serve.chat_template, model.name));
  }
  if (!chat_template) return std::optional<Chat>();
  Chat chat{
      .chat_template = *chat_template,
      .control_tokens = ControlTokens::Of(*chat_template, *model.tokenizer),
      .tool_format = serve.tool_call_parser == kAutoToolFormat
                         ? FindToolFormat(chat_template->tools_source())
                         : ParseToolFormat(serve.tool_call_parser).value_or(ToolFormat::kNone)};
  chat.ends_of_turn = EndsOfTurn(chat, model);
  return std::optional<Chat>(std::move(chat));
}

Result<Chat> RequireChat(const ServeConfig& serve, const LoadedModel& model) {
  TALON_RETURN_IF_ERROR(RequireTokenizer(model).status());
  TALON_ASSIGN_OR_RETURN(std::optional<Chat> chat, LoadChat(serve, model));
  if (chat) return *std::move(chat);
  return InvalidArgument("{}: no chat template; give one with --chat-template FILE, or one of {}",
                         model.name, BuiltinTemplateNames());
}

Result<GenerateRequest> ChatRequest(const Chat& chat, const Tokenizer& tokenizer,
                                    const OrderedJson& messages, const SamplingParams& sampling,
                                    const ChatOptions& options) {
  TALON_ASSIGN_OR_RETURN(const MarkedText text,
                         chat.chat_template.Render(messages, options, chat.control_tokens));
  GenerateRequest request;
  TALON_ASSIGN_OR_RETURN(request.prompt, tokenizer.Encode(text, /*add_special_tokens=*/false));
  request.sampling = sampling;
  if (!sampling.ignore_eos) {
    std::ranges::copy(chat.ends_of_turn, std::back_inserter(request.sampling.stop_token_ids));
  }
  request.text.shown_special_tokens = MarkerTokens(tokenizer, chat.tool_format);
  return request;
}

}  // namespace talon
