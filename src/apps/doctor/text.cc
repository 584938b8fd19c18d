#include "apps/doctor/text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "apps/common/prompts.h"
#include "base/random.h"
#include "setup/progress.h"

namespace talon {
namespace {

constexpr std::array<const char*, kSampledDocuments> kOpenings = {
    "Once upon a time there was a",          "# Introduction\n\nThis document describes",
    "The history of the city begins with",   "def main():\n    ",
    "She looked at him and said, \"",        "To install the program, first",
    "In this example, the function returns", "It was late in the evening when"};
constexpr int kRandomOpening = 8;  // tokens
constexpr int kShortestDocument = 128;
constexpr int kLongestDocument = 512;  // what is sampled of each, to keep the wait short
constexpr float kTemperature = 0.8f;

std::vector<int32_t> RandomTokens(int seed, int vocab_size) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < kRandomOpening; ++i) {
    const double draw =
        UniformDraw({.seed = static_cast<uint64_t>(seed), .position = static_cast<uint64_t>(i)});
    tokens.push_back(static_cast<int32_t>(draw * vocab_size));
  }
  return tokens;
}

// A few tokens to begin document `index` with, whatever the tokenizer.
std::vector<int32_t> Opening(const Tokenizer* tokenizer, int index, int vocab_size) {
  if (tokenizer == nullptr) return RandomTokens(index, vocab_size);
  auto tokens = tokenizer->Encode(kOpenings[index], /*add_special_tokens=*/false);
  if (!tokens.ok()) return RandomTokens(index, vocab_size);
  std::erase_if(*tokens, [vocab_size](int32_t id) { return id >= vocab_size; });
  return tokens->empty() ? RandomTokens(index, vocab_size) : std::move(*tokens);
}

std::vector<int32_t> BeginTokens(const Tokenizer* tokenizer, int vocab_size) {
  if (tokenizer == nullptr) return {};
  const auto bare = tokenizer->Encode("a", false);
  auto whole = tokenizer->Encode("a", true);
  if (!bare.ok() || !whole.ok()) return {};
  const auto at = std::search(whole->begin(), whole->end(), bare->begin(), bare->end());
  whole->erase(at, whole->end());
  std::erase_if(*whole, [vocab_size](int32_t id) { return id >= vocab_size; });
  return std::move(*whole);
}

// Ids of a file may have these tokens already.
void RemoveBegin(const std::vector<int32_t>& begin, std::vector<int32_t>* tokens) {
  const bool there =
      tokens->size() >= begin.size() && std::equal(begin.begin(), begin.end(), tokens->begin());
  if (there) tokens->erase(tokens->begin(), tokens->begin() + static_cast<int64_t>(begin.size()));
}

// A document that came to its end is cut in the middle: a probe has to go on from there.
std::vector<int32_t> Document(std::vector<int32_t> opening, const GenerateResult& result) {
  std::vector<int32_t> tokens = result.TokenIds();
  if (result.finish == FinishReason::kStop) tokens.resize(tokens.size() / 2);
  opening.insert(opening.end(), tokens.begin(), tokens.end());
  return opening;
}

Status RunAll(Engine* engine, int steps) {
  const StatusLine progress;
  for (int step = 0; engine->HasWork(); ++step) {
    engine->RunStep();
    progress.Show(
        fmt::format("the model writes its text: {:3.0f}%", 100.0 * std::min(step, steps) / steps));
  }
  return OkStatus();
}

// All documents at once, in one batch.
Status SampleDocuments(LoadedModel* model, const Config& config, int tokens, ProbeText* text) {
  const int vocab = model->target->config().vocab_size;
  const int length =
      std::min(std::clamp(tokens / kSampledDocuments, kShortestDocument, kLongestDocument),
               model->target->config().max_context / 2);
  const EngineOptions saved = model->engine_options;
  model->engine_options.max_sequences = kSampledDocuments;
  model->engine_options.kv_tokens = kSampledDocuments * (length + 64);
  auto engine = MakeEngine(model, config, DrafterList());
  model->engine_options = saved;
  if (!engine.ok()) return engine.status();
  std::vector<RequestId> ids;
  for (int i = 0; i < kSampledDocuments; ++i) {
    GenerateRequest request{.prompt = text->begin};
    const std::vector<int32_t> opening = Opening(model->tokenizer.get(), i, vocab);
    request.prompt.insert(request.prompt.end(), opening.begin(), opening.end());
    request.sampling.temperature = kTemperature;
    request.sampling.seed = i;
    request.sampling.max_tokens = length;
    TALON_ASSIGN_OR_RETURN(const RequestId id, (*engine)->Submit(std::move(request)));
    ids.push_back(id);
  }
  TALON_RETURN_IF_ERROR(RunAll(engine->get(), length));
  for (int i = 0; i < kSampledDocuments; ++i) {
    TALON_ASSIGN_OR_RETURN(const GenerateResult result, (*engine)->Take(ids[i]));
    if (result.finish == FinishReason::kError) return result.error;
    text->documents.push_back(Document(Opening(model->tokenizer.get(), i, vocab), result));
  }
  return OkStatus();
}

}  // namespace

std::vector<int32_t> ProbeText::Context(int last, int length) const {
  std::vector<int32_t> reversed;
  const auto wanted = std::max(static_cast<size_t>(length), begin.size() + 1) - begin.size();
  for (auto d = static_cast<size_t>(last); reversed.size() < wanted;
       d = (d + documents.size() - 1) % documents.size()) {
    const auto count = std::min(documents[d].size(), wanted - reversed.size());
    reversed.insert(reversed.end(), documents[d].rbegin(),
                    documents[d].rbegin() + static_cast<int64_t>(count));
  }
  reversed.insert(reversed.end(), begin.rbegin(), begin.rend());
  std::ranges::reverse(reversed);
  return reversed;
}

Result<ProbeText> MakeProbeText(LoadedModel* model, const Config& config,
                                const std::string& prompts, int tokens) {
  const Tokenizer* tokenizer = model->tokenizer.get();
  ProbeText text{.begin = BeginTokens(tokenizer, model->target->config().vocab_size)};
  if (prompts.empty()) {
    text.random = tokenizer == nullptr;
    text.origin = text.random ? "the model's own text after random tokens (it has no tokenizer)"
                              : "the model's own text";
    TALON_RETURN_IF_ERROR(SampleDocuments(model, config, tokens, &text));
    return text;
  }
  TALON_ASSIGN_OR_RETURN(PromptReader reader, MakePromptReader(config.serve, *model));
  reader.add_special_tokens = false;
  TALON_ASSIGN_OR_RETURN(auto read, reader.Read(prompts));
  for (Prompt& prompt : read) {
    RemoveBegin(text.begin, &prompt.tokens);
    if (!prompt.tokens.empty()) text.documents.push_back(std::move(prompt.tokens));
  }
  if (text.documents.empty()) return InvalidArgument("{}: all prompts are empty", prompts);
  text.origin = prompts;
  return text;
}

}  // namespace talon
