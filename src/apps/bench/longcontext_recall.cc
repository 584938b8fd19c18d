#include "apps/bench/longcontext_recall.h"

#include <bit>
#include <map>
#include <memory>
#include <string_view>

#include "base/json.h"
#include "setup/progress.h"

namespace talon {
namespace {

constexpr int kTokensAfterAnswer = 2;

struct Tally {
  int prompts = 0;
  int right = 0;
  int different = 0;  // tokens that full verification did not give
};

struct RecallVariant {
  Variant variant;
  int full = -1;                 // index of its full twin, -1: it is one
  std::map<int, Tally> tallies;  // by bucket
};

std::string_view Trimmed(const std::string& text) {
  const size_t start = text.find_first_not_of(" \n");
  return start == std::string::npos ? std::string_view() : std::string_view(text).substr(start);
}

// Full twins, each before what is compared with it.
std::vector<RecallVariant> Arrange(const std::vector<Variant>& variants) {
  std::vector<RecallVariant> out;
  std::map<int, int> place;  // index of a variant in `out`
  for (const Variant& variant : variants) {
    if (!variant.partial) continue;
    const int twin = std::max(FullTwinOf(variants, variant), 0);
    if (!place.contains(twin)) {
      place[twin] = static_cast<int>(out.size());
      out.push_back({.variant = variants[static_cast<size_t>(twin)]});
    }
    out.push_back({.variant = variant, .full = place[twin]});
  }
  return out;
}

// One engine for all variants of a drafter, so that a prompt is computed once: they differ in what
// their requests want of partial verification.
class RecallEngines {
 public:
  RecallEngines(LoadedModel* model, const Config& config, int prompt_tokens)
      : model_(model), config_(config), prompt_tokens_(prompt_tokens) {}

  Result<GenerateResult> Run(const Variant& variant, const std::vector<int32_t>& prompt,
                             const std::string& what) {
    std::unique_ptr<Engine>& engine = engines_[variant.drafter.Name()];
    if (engine == nullptr) {
      Variant any{.drafter = variant.drafter, .partial = SpecPvMode::kExact, .budget = kAnyBudget};
      TALON_ASSIGN_OR_RETURN(engine, MakeVariantEngine(model_, config_, any, prompt_tokens_));
    }
    GenerateRequest request{.prompt = prompt};
    TALON_ASSIGN_OR_RETURN(request.sampling,
                           MakeSamplingParams(config_.sampling, model_->tokenizer.get()));
    request.specpv = {
        .off = !variant.partial, .mode = variant.partial, .budget_tokens = variant.budget};
    TALON_ASSIGN_OR_RETURN(const RequestId id, engine->Submit(std::move(request)));
    const StatusLine progress;
    while (engine->HasWork()) {
      progress.Show(what);
      engine->RunStep();
    }
    return engine->Take(id);
  }

 private:
  static constexpr int kAnyBudget = 1024;  // requests name their own
  LoadedModel* model_;
  const Config& config_;
  int prompt_tokens_;
  std::map<std::string, std::unique_ptr<Engine>> engines_;
};

Status AnswerPrompt(LoadedModel* model, const Config& config, const Prompt& prompt,
                    const std::string& what, std::vector<RecallVariant>* variants) {
  std::vector<GenerateResult> results;
  const auto length = static_cast<int>(prompt.tokens.size());
  RecallEngines engines(model, config, length);
  for (RecallVariant& each : *variants) {
    auto result =
        engines.Run(each.variant, prompt.tokens, fmt::format("{}: {}", what, each.variant.Label()));
    if (result.ok() && result->finish == FinishReason::kError) result = result->error;
    if (!result.ok()) return result.status().WithContext(prompt.id);
    results.push_back(std::move(*result));
    Tally& tally = each.tallies[RecallBucketOf(length)];
    const size_t twin = each.full < 0 ? results.size() - 1 : static_cast<size_t>(each.full);
    tally.prompts += 1;
    tally.right += AnswersRight(results.back().text, prompt.answer) ? 1 : 0;
    tally.different += results.back().TokenIds() == results[twin].TokenIds() ? 0 : 1;
  }
  return OkStatus();
}

Json RecallJson(const RecallVariant& recall) {
  Json buckets = Json::array();
  for (const auto& [tokens, tally] : recall.tallies) {
    buckets.push_back({{"tokens", tokens},
                       {"prompts", tally.prompts},
                       {"right", tally.right},
                       {"different", tally.different}});
  }
  return {{"label", recall.variant.Label()},
          {"mode", recall.variant.mode},
          {"budget", recall.variant.budget},
          {"must_be_identical", recall.variant.exact()},
          {"buckets", buckets}};
}

}  // namespace

int RecallBucketOf(int tokens) {
  const auto above = static_cast<int>(std::bit_ceil(static_cast<unsigned>(tokens)));
  return int64_t{2} * tokens * tokens < int64_t{above} * above ? above / 2 : above;
}

bool AnswersRight(const std::string& text, const std::string& answer) {
  return Trimmed(text).starts_with(Trimmed(answer));
}

Result<std::vector<Prompt>> ReadRecallPrompts(const std::string& path, const LoadedModel& model,
                                              int per_length) {
  TALON_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, RequireTokenizer(model));
  const PromptReader reader{.tokenizer = tokenizer,
                            .vocab_size = model.target->config().vocab_size};
  TALON_ASSIGN_OR_RETURN(auto read, reader.Read(path));
  std::vector<Prompt> prompts;
  std::map<int, int> taken;
  for (Prompt& prompt : read) {
    if (prompt.answer.empty()) {
      return InvalidArgument("{}: prompt {} has no \"answer\" string", path, prompt.id);
    }
    int& count = taken[RecallBucketOf(static_cast<int>(prompt.tokens.size()))];
    if (per_length > 0 && count >= per_length) continue;
    ++count;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Result<Json> RunRecall(LoadedModel* model, Config config, const std::vector<Variant>& variants,
                       const std::vector<Prompt>& prompts) {
  config.sampling.temperature = 0;  // an answer is right or wrong, not likely
  std::vector<RecallVariant> arranged = Arrange(variants);
  model->engine_options.prefix_cache = true;
  for (size_t p = 0; p < prompts.size(); ++p) {
    TALON_ASSIGN_OR_RETURN(const auto answer, model->tokenizer->Encode(prompts[p].answer, false));
    config.sampling.max_tokens = static_cast<int>(answer.size()) + kTokensAfterAnswer;
    const std::string what = fmt::format("recall {} of {}", p + 1, prompts.size());
    TALON_RETURN_IF_ERROR(AnswerPrompt(model, config, prompts[p], what, &arranged));
  }
  model->engine_options.prefix_cache = config.enable_prefix_cache;
  Json rows = Json::array();
  for (const RecallVariant& each : arranged) rows.push_back(RecallJson(each));
  return rows;
}

}  // namespace talon
