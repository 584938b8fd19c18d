// Answers of /v1/completions and /v1/chat/completions.
#include <fmt/core.h>

#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/random.h"
#include "serve/http/api/answer_writer.h"
#include "serve/http/api/chat_answer.h"

namespace talon {
namespace {

// vLLM's form: null for the first token, then each candidate by its id.
Json PromptLogprobs(std::span<const EmittedToken> prompt, const Tokenizer* tokenizer) {
  Json out = Json::array();
  for (const EmittedToken& token : prompt) {
    if (std::isnan(token.log_prob)) {
      out.push_back(nullptr);
      continue;
    }
    const auto entry = [&](int32_t id, float log_prob, const Json& rank) {
      return Json{
          {"logprob", log_prob}, {"rank", rank}, {"decoded_token", TokenText(tokenizer, id)}};
    };
    Json row = {{std::to_string(token.token), entry(token.token, token.log_prob, nullptr)}};
    for (size_t i = 0; i < token.top.size(); ++i) {
      const TopLogProb& each = token.top[i];
      row[std::to_string(each.token)] = entry(each.token, each.log_prob, i + 1);
    }
    out.push_back(std::move(row));
  }
  return out;
}

class CompletionWriter : public AnswerWriter {
 public:
  explicit CompletionWriter(const AnswerParts& parts)
      : request_(parts.request),
        tokenizer_(parts.tokenizer),
        echoes_(parts.echoes),
        head_{.endpoint = request_.endpoint,
              .id = parts.id,
              .created = std::time(nullptr),
              .model = parts.model} {
    for (const std::vector<int32_t>& prompt : parts.prompts) {
      const bool after = !request_.echo;  // else the prompt's tokens come first
      const bool matched = request_.sampling.grammar != nullptr;  // with its first space
      const TokenJsonWriter tokens(tokenizer_, after ? prompt : std::vector<int32_t>(),
                                   after && matched);
      for (int i = 0; i < request_.n; ++i) choices_.push_back({.tokens = tokens});
    }
    if (parts.answer_shape == AnswerShape{}) return;
    for (Choice& choice : choices_) {
      choice.answer.emplace(parts.answer_shape.format, OptionsOf(parts));
    }
  }

  Json Whole(std::span<const GenerateResult* const> results, const Usage& usage) override {
    std::vector<ChoiceJson> parts;
    for (size_t i = 0; i < results.size(); ++i) {
      const GenerateResult& result = *results[i];
      parts.push_back(Part(static_cast<int>(i), result.prompt, result.tokens));
      parts.back().text += result.text;
      parts.back().finish = result.finish;
      if (auto& answer = choices_[i].answer) {
        answer->Feed(result.text);
        answer->Finish();
        parts.back().chat = answer->Message();
        parts.back().has_calls = answer->has_calls();
      }
      if (request_.prompt_logprobs) {
        parts.back().prompt_logprobs = PromptLogprobs(result.prompt, tokenizer_);
      }
    }
    return WholeAnswer(head_, parts, usage);
  }

  std::string Update(int index, const RequestUpdate& update) override {
    std::string events = Role(index);
    ChoiceJson part = Part(index, update.prompt, update.tokens);
    part.text += update.text;
    std::vector<Json> deltas;
    if (auto& answer = choices_[index].answer) {
      deltas = answer->Feed(std::exchange(part.text, {}));
      if (!deltas.empty()) part.chat = deltas[0];
    }
    const bool watched = update.stats.has_value();
    if (part.text.empty() && deltas.empty() && !has_logprobs() && !watched) return events;
    Json chunk = TextChunk(head_, part);
    if (watched) chunk["talon"] = choices_[index].tokens.Trace(update);
    return events + Event(std::move(chunk)) + Deltas(index, deltas, /*first=*/1);
  }

  std::string EndChoice(int index, const GenerateResult& result) override {
    std::string events = Role(index);
    ChoiceJson last{.index = index, .finish = result.finish};
    if (auto& answer = choices_[index].answer) {
      events += Deltas(index, answer->Finish(), /*first=*/0);
      last.has_calls = answer->has_calls();
    }
    return events + Event(TextChunk(head_, last));
  }

  std::string End(const Usage& usage) override {
    const std::string last = request_.include_usage ? Event(UsageChunk(head_, usage)) : "";
    return last + "data: [DONE]\n\n";
  }

  std::string Fail(const ApiError& error) override {
    return "data: " + JsonText(ErrorJson(error)) + "\n\n";
  }

 private:
  struct Choice {
    TokenJsonWriter tokens;
    bool has_role = false;
    bool echoed = false;
    std::optional<ChatAnswer> answer;  // none: all of the text is content
  };

  bool has_logprobs() const { return request_.sampling.logprobs >= 0; }

  // The first event of a chat's choice.
  std::string Role(int index) {
    const bool has_role = std::exchange(choices_[index].has_role, true);
    if (has_role || head_.endpoint != Endpoint::kChat) return "";
    return Event(RoleChunk(head_, index));
  }

  // Events of all from the `first` on.
  std::string Deltas(int index, const std::vector<Json>& deltas, size_t first) const {
    std::string events;
    for (size_t i = first; i < deltas.size(); ++i) {
      events += Event(TextChunk(head_, {.index = index, .chat = deltas[i]}));
    }
    return events;
  }

  // Tokens of a choice, the prompt's before its own where it is echoed.
  ChoiceJson Part(int index, std::span<const EmittedToken> prompt,
                  std::span<const EmittedToken> tokens) {
    Choice& choice = choices_[index];
    ChoiceJson part{.index = index};
    std::vector<EmittedToken> shown;
    if (request_.echo && !std::exchange(choice.echoed, true)) {
      part.text = echoes_[index / request_.n];
      shown.assign(prompt.begin(), prompt.end());
    }
    shown.insert(shown.end(), tokens.begin(), tokens.end());
    if (has_logprobs()) part.logprobs = choice.tokens.Logprobs(head_.endpoint, shown);
    return part;
  }

  std::string Event(Json chunk) const {
    if (request_.include_usage && !chunk.contains("usage")) chunk["usage"] = nullptr;
    return "data: " + JsonText(chunk) + "\n\n";
  }

  const ApiRequest request_;
  const Tokenizer* tokenizer_;
  const std::vector<std::string> echoes_;
  const AnswerHead head_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> NewCompletionWriter(const AnswerParts& parts) {
  return std::make_unique<CompletionWriter>(parts);
}

ParserOptions OptionsOf(const AnswerParts& parts) {
  return {.tools = parts.request.tools.Names(),
          .constrained = parts.request.sampling.grammar != nullptr,
          .thinking = parts.answer_shape.thinking};
}

std::unique_ptr<AnswerWriter> NewAnswerWriter(AnswerParts parts) {
  if (parts.id.empty()) parts.id = NewAnswerId(parts.request.endpoint);
  switch (parts.request.endpoint) {
    case Endpoint::kEmbeddings:
      return NewEmbeddingsWriter(parts);
    case Endpoint::kResponses:
      return NewResponsesWriter(parts);
    default:
      return NewCompletionWriter(parts);
  }
}

std::string NewAnswerId(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat:
      return NewAnswerId("chatcmpl-");
    case Endpoint::kEmbeddings:
      return NewAnswerId("embd-");
    case Endpoint::kResponses:
      return NewAnswerId("resp_");
    case Endpoint::kCompletions:
      break;
  }
  return NewAnswerId("cmpl-");
}

std::string NewAnswerId(const std::string& prefix) {
  return fmt::format("{}{:016x}", prefix, RandomSeed());
}

}  // namespace talon
