#include "apps/doctor/alternatives.h"

#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/common/prompts.h"
#include "apps/common/run_report.h"
#include "apps/common/table.h"
#include "base/file.h"
#include "setup/progress.h"
#include "setup/wrap_text.h"

namespace talon {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLayerConfig = "transformer_layer_config";  // key of the speculators' layout
constexpr int kTexts = 4;
constexpr int kContext = 128;
constexpr double kBetter = 1.15;  // tau against the head as it is: less is chance

constexpr std::array<const char*, kTexts> kQuestions = {
    "Tell me a short story about a dog.", "What is the capital of France?",
    "How do I list the files of a directory?", "Explain in two sentences what a database is."};

// Where the rope of a head's layers is written.
Json& LayerKeys(Json* config) {
  return config->contains(kLayerConfig) ? (*config)[kLayerConfig] : *config;
}

void AddRopes(const Json& config, std::vector<Alternative>* all) {
  const auto without_rope = [&] {
    Json changed = config;
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) {
      LayerKeys(&changed).erase(key);
    }
    return changed;
  };
  Json changed = without_rope();
  if (changed != config) {
    all->push_back({.name = "the target's rope",
                    .change = "without rope_theta, rope_scaling and rope_parameters in its "
                              "config.json the target's rope is used",
                    .config = changed});
  }
  for (const double theta : {1e4, 5e5, 1e6}) {
    changed = without_rope();
    LayerKeys(&changed)["rope_theta"] = theta;
    if (changed == config) continue;
    all->push_back({.name = fmt::format("rope_theta {:.0f}, not scaled", theta),
                    .change = fmt::format("rope_theta {:.0f} in its config.json, without "
                                          "rope_scaling and rope_parameters",
                                          theta),
                    .config = changed});
  }
}

void AddCaptures(const Json& config, const DraftFacts& facts, std::vector<Alternative>* all) {
  const int n = facts.target_layers;
  std::vector<std::vector<int>> lists;
  if (facts.capture_layers.size() == 3) lists.push_back({2, n / 2, n - 3});
  for (const int shift : {-1, 1}) {  // a list of inputs taken for one of outputs, or the reverse
    std::vector<int> list = facts.capture_layers;
    for (int& layer : list) layer += shift;
    lists.push_back(list);
  }
  for (const std::vector<int>& list : lists) {
    const bool possible = std::ranges::all_of(list, [n](int l) { return l >= 0 && l <= n; });
    if (!possible || list == facts.capture_layers) continue;
    const std::string layers = fmt::format("{}", fmt::join(list, ","));
    all->push_back({.name = "captured layers " + layers,
                    .change = "--eagle3-capture-layers " + layers,
                    .config = config,
                    .capture_layers = list});
  }
}

void AddFeature(const Json& config, std::vector<Alternative>* all) {
  const bool now = config.value("feature_norm", true);
  Alternative other{.name = fmt::format("the feature {} the final norm", now ? "before" : "after"),
                    .change = fmt::format("\"feature_norm\": {} in its config.json", !now),
                    .config = config};
  other.config["feature_norm"] = !now;
  all->push_back(std::move(other));
}

void AddNorms(const Json& config, std::vector<Alternative>* all) {
  for (const char* key : {"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"}) {
    const bool speculators = config.contains("speculators_model_type");
    const bool usual = speculators && std::string_view(key) == "norm_before_residual";
    const auto given = config.find(key);
    const bool now = given != config.end() && given->is_boolean() ? given->get<bool>() : usual;
    Alternative other{.name = fmt::format("{} {}", key, !now), .config = config};
    other.config[key] = !now;
    other.change = fmt::format("\"{}\": {} in its config.json", key, !now);
    all->push_back(std::move(other));
  }
}

// The head's folder with another config.json, until it is destroyed.
class OtherConfig {
 public:
  static Result<std::unique_ptr<OtherConfig>> Make(const std::string& head, const Json& config) {
    std::error_code error;
    std::string path = (fs::temp_directory_path(error) / "talon-head-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return Unavailable("cannot make a temporary folder for another config.json");
    }
    auto made = std::unique_ptr<OtherConfig>(new OtherConfig(path));
    for (const fs::directory_entry& entry : fs::directory_iterator(head, error)) {
      if (entry.path().filename() == "config.json") continue;
      fs::create_symlink(fs::absolute(entry.path()), fs::path(path) / entry.path().filename(),
                         error);
      if (error) return Unavailable("{}: {}", path, error.message());
    }
    TALON_RETURN_IF_ERROR(WriteFile(path + "/config.json", config.dump()));
    return made;
  }
  ~OtherConfig() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  OtherConfig(const OtherConfig&) = delete;
  OtherConfig& operator=(const OtherConfig&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit OtherConfig(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// The fixed tree's tokens per pass over the contexts, with the head as `options` has it.
Result<double> MeasureTau(LoadedModel* model, const Config& config, const DrafterOptions& options,
                          const std::vector<std::vector<int32_t>>& contexts) {
  Config settings = config;
  settings.speculative.adaptive = false;
  TALON_ASSIGN_OR_RETURN(const DrafterList drafters,
                         DrafterList::Parse(settings.speculative.method));
  const DrafterOptions saved = std::exchange(model->drafter_options, options);
  auto made = MakeEngine(model, settings, drafters);
  model->drafter_options = saved;
  TALON_ASSIGN_OR_RETURN(const auto engine, std::move(made));
  TALON_ASSIGN_OR_RETURN(const SamplingParams sampling,
                         MakeSamplingParams(config.sampling, model->tokenizer.get()));
  RequestStats stats;
  for (const std::vector<int32_t>& context : contexts) {
    TALON_ASSIGN_OR_RETURN(const GenerateResult result,
                           engine->Generate({.prompt = context, .sampling = sampling}));
    if (result.finish == FinishReason::kError) return result.error;
    AddStats(result.stats, &stats);
  }
  return stats.tau();
}

// The reading that does best or, where none does better on the same text, the other text.
const AlternativeFigures& Best(const std::vector<AlternativeFigures>& figures) {
  const AlternativeFigures* best[2] = {&figures.front(), &figures.front()};
  for (const AlternativeFigures& one : figures) {
    const AlternativeFigures*& kind = best[one.other_text ? 1 : 0];
    if (one.tau > kind->tau) kind = &one;
  }
  return best[0]->tau >= kBetter * figures.front().tau ? *best[0] : *best[1];
}

// Empty: the model has no chat template that takes a question.
std::vector<std::vector<int32_t>> Conversations(const LoadedModel& model, const Config& config) {
  std::vector<std::vector<int32_t>> contexts;
  const auto reader = MakePromptReader(config.serve, model);
  if (!reader.ok() || !reader->chat) return contexts;
  for (const char* question : kQuestions) {
    auto tokens = reader->chat({{"messages", {{{"role", "user"}, {"content", question}}}}});
    if (tokens.ok()) contexts.push_back(std::move(*tokens));
  }
  return contexts;
}

}  // namespace

std::vector<Alternative> AlternativesOf(const Json& config, const DraftFacts& facts) {
  std::vector<Alternative> all;
  if (facts.kind == "STANDALONE") return all;
  AddRopes(config, &all);
  if (facts.kind == "EAGLE") {
    AddFeature(config, &all);
  } else {
    AddCaptures(config, facts, &all);
  }
  if (facts.kind == "EAGLE3") AddNorms(config, &all);
  return all;
}

Result<std::vector<AlternativeFigures>> TryAlternatives(LoadedModel* model, const Config& config,
                                                        const DraftFacts& facts,
                                                        const ProbeText& text) {
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(facts.dir + "/config.json"));
  std::vector<std::vector<int32_t>> contexts;
  for (int i = 0; i < std::min<int>(kTexts, static_cast<int>(text.documents.size())); ++i) {
    contexts.push_back(text.Context(i, std::min(kContext, facts.max_length / 2)));
  }
  std::vector<std::vector<int32_t>> talks = Conversations(*model, config);
  EngineOptions& engine = model->engine_options;
  for (const auto* all : {&contexts, &talks}) {
    for (const std::vector<int32_t>& one : *all) {
      const int length = static_cast<int>(one.size()) + config.sampling.max_tokens + 1;
      engine.kv_tokens = std::max(engine.kv_tokens, length + engine.MaxTreeRows());
    }
  }
  const DrafterOptions as_is = model->drafter_options;
  const StatusLine progress;
  std::vector<AlternativeFigures> figures(1, {.name = "as it is"});
  progress.Show("the head as it is");
  TALON_ASSIGN_OR_RETURN(figures[0].tau, MeasureTau(model, config, as_is, contexts));
  if (!talks.empty()) {
    figures.push_back({.name = "as it is, on conversations",
                       .change = "it knows conversations: judge it by prompts with \"messages\"",
                       .other_text = true});
    TALON_ASSIGN_OR_RETURN(figures.back().tau, MeasureTau(model, config, as_is, talks));
  }
  for (const Alternative& other : AlternativesOf(json, facts)) {
    progress.Show(other.name);
    TALON_ASSIGN_OR_RETURN(const auto head, OtherConfig::Make(facts.dir, other.config));
    DrafterOptions options = as_is;
    options.draft_model_path = head->path();
    if (!other.capture_layers.empty()) options.capture_layers = other.capture_layers;
    const auto tau = MeasureTau(model, config, options, contexts);
    figures.push_back({.name = other.name,
                       .change = other.change,
                       .tau = tau.ok() ? *tau : 0,
                       .loads = tau.ok()});
  }
  return figures;
}

std::string AlternativesText(const std::vector<AlternativeFigures>& figures, double claimed) {
  Table table({"other readings of the draft", "tokens per pass"});
  for (const AlternativeFigures& one : figures) {
    table.Add({one.name, one.loads ? fmt::format("{:.2f}", one.tau) : "does not load"});
  }
  const AlternativeFigures& now = figures.front();
  const AlternativeFigures& best = Best(figures);
  std::string words;
  if (best.tau < kBetter * now.tau) {
    words = fmt::format(
        "No other reading raises acceptance: the draft has {:.2f} tokens per pass on this text and "
        "is claimed to have {:.2f}. Perhaps it was trained for other weights of this model, or for "
        "other text (--prompts).",
        now.tau, claimed);
  } else {
    words = fmt::format("'{}' raises acceptance from {:.2f} to {:.2f} tokens per pass: {}.",
                        best.name, now.tau, best.tau, best.change);
  }
  return table.ToString() + "\n" + WrapText(words, 80) + "\n";
}

Json AlternativesJson(const std::vector<AlternativeFigures>& figures) {
  Json json = Json::array();
  for (const AlternativeFigures& one : figures) {
    json.push_back({{"name", one.name}, {"tau", one.tau}, {"loads", one.loads}});
  }
  return json;
}

}  // namespace talon
